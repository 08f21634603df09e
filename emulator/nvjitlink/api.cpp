// The functions of nvJitLink.h. A handle is valid from nvJitLinkCreate to nvJitLinkDestroy; any other is answered with
// an error. No exception leaves this file.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/text_image.hpp"
#include "nvrtc/linking.hpp"
#include "options.hpp"

namespace aiocuda::emulator::nvjitlink {
namespace {

enum Result : int {
  success = 0,
  error_unrecognized_option = 1,
  error_missing_arch = 2,
  error_invalid_input = 3,
  error_ptx_compile = 4,
  error_internal = 6,
  error_unrecognized_input = 8,
  error_null_input = 10,
  error_incompatible_options = 11,
  error_incorrect_input_type = 12,
  error_lto_not_enabled = 18,
};

enum InputType : int { input_ltoir = 3, input_fatbin = 4, input_library = 6, input_index = 7, input_any = 10 };

constexpr unsigned version_major = 13;
constexpr unsigned version_minor = 0;

struct Link {
  std::mutex mutex;
  Options options;
  std::vector<nvrtc::LinkInput> inputs;
  std::string image;
  std::string text;
  std::string errors;
  bool is_complete = false;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Link>> links;
};

// Never destroyed: threads may still link while the process ends.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

template <class F>
int with_link(void* handle, F f) noexcept {
  try {
    std::shared_ptr<Link> link;
    {
      Registry& all = registry();
      const std::scoped_lock lock(all.mutex);
      const auto entry = all.links.find(handle);
      if (entry == all.links.end()) return error_invalid_input;
      link = entry->second;
    }
    const std::scoped_lock lock(link->mutex);
    return f(*link);
  } catch (...) {
    return error_internal;
  }
}

Result add(Link& link, int type, std::string content, std::string name) {
  if (type == input_ltoir && !link.options.link_time) {
    link.errors += "error   : '" + name + "' is for link time, and the linker was made without -lto\n";
    return error_lto_not_enabled;
  }
  const nvrtc::InputKind kind = nvrtc::read_input(content);
  if (kind == nvrtc::InputKind::device_runtime) return success;
  if (type == input_fatbin || type == input_library || type == input_index) {
    link.errors += "error   : '" + name + "' is a library or a fat binary, which only a GPU can run\n";
    return error_unrecognized_input;
  }
  if (kind == nvrtc::InputKind::object || kind == nvrtc::InputKind::whole_program) {
    link.inputs.push_back({std::move(name), std::move(content)});
    return success;
  }
  link.errors += nvrtc::why_no_input(kind, name);
  return kind == nvrtc::InputKind::text_without_image ? error_ptx_compile
         : type == input_any                          ? error_unrecognized_input
                                                      : error_incorrect_input_type;
}

int size_of(void* handle, std::size_t* size, bool as_text) {
  if (size == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    if (!link.is_complete || link.options.as_text != as_text) return error_invalid_input;
    *size = as_text ? link.text.size() + 1 : link.image.size();
    return success;
  });
}

}  // namespace
}  // namespace aiocuda::emulator::nvjitlink

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::nvjitlink;

#define NVJITLINK_API __attribute__((visibility("default")))

extern "C" {

NVJITLINK_API int nvJitLinkVersion(unsigned* major, unsigned* minor) {
  if (major == nullptr || minor == nullptr) return error_null_input;
  *major = version_major;
  *minor = version_minor;
  return success;
}

NVJITLINK_API int nvJitLinkCreate(void** handle, std::uint32_t count, const char** options) {
  if (handle == nullptr || (count > 0 && options == nullptr)) return error_null_input;
  try {
    auto link = std::make_shared<Link>();
    for (std::uint32_t each = 0; each < count; ++each) {
      if (options[each] == nullptr) return error_null_input;
      if (!read_option(options[each], link->options)) return error_unrecognized_option;
    }
    if (link->options.architecture == 0) return error_missing_arch;
    if (link->options.as_text && !link->options.link_time) return error_incompatible_options;
    Registry& all = registry();
    const std::scoped_lock lock(all.mutex);
    *handle = link.get();
    all.links.emplace(link.get(), std::move(link));
    return success;
  } catch (...) {
    return error_internal;
  }
}

NVJITLINK_API int nvJitLinkDestroy(void** handle) {
  if (handle == nullptr) return error_null_input;
  std::shared_ptr<Link> last;  // destroyed outside the lock
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto entry = all.links.find(*handle);
  if (entry == all.links.end()) return error_invalid_input;
  last = std::move(entry->second);
  all.links.erase(entry);
  *handle = nullptr;
  return success;
}

NVJITLINK_API int nvJitLinkAddData(void* handle, int type, const void* data, std::size_t size, const char* name) {
  if (data == nullptr || size == 0) return error_null_input;
  return with_link(handle, [&](Link& link) {
    return add(link, type, std::string(static_cast<const char*>(data), size), name != nullptr ? name : "");
  });
}

NVJITLINK_API int nvJitLinkAddFile(void* handle, int type, const char* path) {
  if (path == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) {
      link.errors += std::string("error   : '") + path + "' cannot be read\n";
      return error_invalid_input;
    }
    return add(link, type, std::string{std::istreambuf_iterator<char>(stream), {}}, path);
  });
}

NVJITLINK_API int nvJitLinkComplete(void* handle) {
  return with_link(handle, [](Link& link) {
    nvrtc::LinkResult result = nvrtc::link(link.inputs);
    link.errors += result.log;
    if (result.status != nvrtc::LinkStatus::linked) {
      link.errors += "ERROR 9: complete\n";  // as NVIDIA's 13.5 ends it
      return error_internal;
    }
    link.image = std::move(result.image);
    if (link.options.as_text) link.text = abi::text_of_image(link.image, link.options.architecture);
    link.is_complete = true;
    return success;
  });
}

NVJITLINK_API int nvJitLinkGetLinkedCubinSize(void* handle, std::size_t* size) { return size_of(handle, size, false); }
NVJITLINK_API int nvJitLinkGetLinkedCubin(void* handle, void* to) {
  if (to == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    if (!link.is_complete || link.options.as_text) return error_invalid_input;
    std::memcpy(to, link.image.data(), link.image.size());
    return success;
  });
}
NVJITLINK_API int nvJitLinkGetLinkedPtxSize(void* handle, std::size_t* size) { return size_of(handle, size, true); }
NVJITLINK_API int nvJitLinkGetLinkedPtx(void* handle, char* to) {
  if (to == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    if (!link.is_complete || !link.options.as_text) return error_invalid_input;
    std::memcpy(to, link.text.c_str(), link.text.size() + 1);
    return success;
  });
}

NVJITLINK_API int nvJitLinkGetErrorLogSize(void* handle, std::size_t* size) {
  if (size == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    *size = link.errors.empty() ? 0 : link.errors.size() + 1;
    return success;
  });
}
NVJITLINK_API int nvJitLinkGetErrorLog(void* handle, char* to) {
  if (to == nullptr) return error_null_input;
  return with_link(handle, [&](Link& link) {
    if (!link.errors.empty()) std::memcpy(to, link.errors.c_str(), link.errors.size() + 1);
    return success;
  });
}

// The host's linker has nothing to tell of a link that succeeds.
NVJITLINK_API int nvJitLinkGetInfoLogSize(void* handle, std::size_t* size) {
  if (size == nullptr) return error_null_input;
  return with_link(handle, [&](Link&) {
    *size = 0;
    return success;
  });
}
NVJITLINK_API int nvJitLinkGetInfoLog(void* handle, char* to) {
  if (to == nullptr) return error_null_input;
  return with_link(handle, [](Link&) { return success; });
}
}

// Programs that were built with NVIDIA's header of a minor version call its functions by names with that version.
// PyTorch needs some of them as soon as it is imported.
// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
#define NVJITLINK_OF_VERSION(name, minor)                                           \
  extern "C" NVJITLINK_API decltype(nvJitLink##name) __nvJitLink##name##_13_##minor \
      __attribute__((alias("nvJitLink" #name)));
#define NVJITLINK_OF_VERSIONS(name) \
  NVJITLINK_OF_VERSION(name, 0)     \
  NVJITLINK_OF_VERSION(name, 1)     \
  NVJITLINK_OF_VERSION(name, 2)     \
  NVJITLINK_OF_VERSION(name, 3)     \
  NVJITLINK_OF_VERSION(name, 4)     \
  NVJITLINK_OF_VERSION(name, 5)
NVJITLINK_OF_VERSIONS(Create)
NVJITLINK_OF_VERSIONS(Destroy)
NVJITLINK_OF_VERSIONS(AddData)
NVJITLINK_OF_VERSIONS(AddFile)
NVJITLINK_OF_VERSIONS(Complete)
NVJITLINK_OF_VERSIONS(GetLinkedCubinSize)
NVJITLINK_OF_VERSIONS(GetLinkedCubin)
NVJITLINK_OF_VERSIONS(GetLinkedPtxSize)
NVJITLINK_OF_VERSIONS(GetLinkedPtx)
NVJITLINK_OF_VERSIONS(GetErrorLogSize)
NVJITLINK_OF_VERSIONS(GetErrorLog)
NVJITLINK_OF_VERSIONS(GetInfoLogSize)
NVJITLINK_OF_VERSIONS(GetInfoLog)
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
