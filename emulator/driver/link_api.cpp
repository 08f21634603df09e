// The API of the linker. Inputs are what the emulated NVRTC compiled as relocatable device code.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "api.hpp"
#include "context.hpp"
#include "elf.hpp"
#include "handle_table.hpp"
#include "nvrtc/linking.hpp"

namespace aiocuda::emulator {
namespace {

// A buffer of the caller's for messages, and the option by which he learns how much of it is used.
struct LogBuffer {
  char* text = nullptr;
  std::size_t capacity = 0;
  std::size_t used = 0;
  void** size_option = nullptr;

  // Messages are lines, the last without an end.
  void add(std::string more) {
    if (text == nullptr || capacity == 0) return;
    if (!more.empty() && more.back() == '\n') more.pop_back();
    if (used > 0) more.insert(0, "\n");
    const std::size_t fits = std::min(more.size(), capacity - 1 - std::min(used, capacity - 1));
    std::memcpy(text + used, more.data(), fits);
    used += fits;
    text[used] = '\0';
    if (size_option != nullptr) *size_option = reinterpret_cast<void*>(used);
  }
};

struct Link {
  std::mutex mutex;
  LogBuffer errors;
  LogBuffer information;
  std::vector<nvrtc::LinkInput> inputs;
  std::string linked;  // what cuLinkComplete answers points into it
};

using LinkTable = HandleTable<Link, CUlinkState>;
LinkTable& links() {
  static auto* const table = new LinkTable;
  return *table;
}

CUresult resolve_link(CUlinkState handle, std::shared_ptr<Link>& link) {
  if (const CUresult error = check_initialised()) return error;
  link = links().find(handle);
  return link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool lacks_options(unsigned count, const CUjit_option* options, void* const* values) {
  return count > 0 && (options == nullptr || values == nullptr);
}

CUresult add_input(Link& link, CUjitInputType type, std::string content, std::string name) {
  const nvrtc::InputKind kind = nvrtc::read_input(content);
  if (kind == nvrtc::InputKind::device_runtime) return CUDA_SUCCESS;
  if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_FATBINARY) {
    link.errors.add("error   : '" + name + "' is a library or a fat binary, which only a GPU can run\n");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if (kind != nvrtc::InputKind::object && kind != nvrtc::InputKind::whole_program) {
    link.errors.add(nvrtc::why_no_input(kind, name));
    return kind == nvrtc::InputKind::text_without_image ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
  }
  link.inputs.push_back({std::move(name), std::move(content)});
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

// Options tune a compiler of GPU code, except for those about messages.
CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr || lacks_options(count, options, values)) return CUDA_ERROR_INVALID_VALUE;
  auto link = std::make_shared<Link>();
  for (unsigned each = 0; each < count; ++each) {
    LogBuffer& log = options[each] == CU_JIT_ERROR_LOG_BUFFER || options[each] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
                         ? link->errors
                         : link->information;
    switch (options[each]) {
      case CU_JIT_ERROR_LOG_BUFFER:
      case CU_JIT_INFO_LOG_BUFFER:
        log.text = static_cast<char*>(values[each]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        log.capacity = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[each]));
        log.size_option = &values[each];
        break;
      default:
        break;
    }
  }
  for (LogBuffer* log : {&link->errors, &link->information}) log->add("");
  *handle = links().add(std::move(link));
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, std::size_t bytes, const char* name,
                          unsigned count, CUjit_option* options, void** values) {
  std::shared_ptr<Link> link;
  if (const CUresult error = resolve_link(handle, link)) return error;
  if (data == nullptr || bytes == 0 || lacks_options(count, options, values)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(link->mutex);
  return add_input(*link, type, std::string(static_cast<const char*>(data), bytes), name != nullptr ? name : "");
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned count,
                          CUjit_option* options, void** values) {
  std::shared_ptr<Link> link;
  if (const CUresult error = resolve_link(handle, link)) return error;
  if (path == nullptr || lacks_options(count, options, values)) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string content{std::istreambuf_iterator<char>(stream), {}};
  const std::lock_guard lock(link->mutex);
  return add_input(*link, type, std::move(content), path);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, std::size_t* bytes) {
  std::shared_ptr<Link> link;
  if (const CUresult error = resolve_link(handle, link)) return error;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(link->mutex);
  nvrtc::LinkResult result = nvrtc::link(link->inputs);
  if (result.status != nvrtc::LinkStatus::linked) {
    link->errors.add(result.log);
    return result.status == nvrtc::LinkStatus::unresolved ? CUDA_ERROR_INVALID_SOURCE : CUDA_ERROR_UNKNOWN;
  }
  link->linked = std::move(result.image);
  *image = link->linked.data();
  if (bytes != nullptr) *bytes = link->linked.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState handle) {
  if (const CUresult error = check_initialised()) return error;
  return links().take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The forms of before CUDA 6.5 differ from the newer ones in types alone that are passed alike.
#undef cuLinkCreate
#undef cuLinkAddData
#undef cuLinkAddFile
extern "C" [[gnu::visibility("default")]] CUresult cuLinkCreate(unsigned count, CUjit_option* options, void** values,
                                                                CUlinkState* handle) {
  return cuLinkCreate_v2(count, options, values, handle);
}
extern "C" [[gnu::visibility("default")]] CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data,
                                                                 std::size_t bytes, const char* name, unsigned count,
                                                                 CUjit_option* options, void** values) {
  return cuLinkAddData_v2(handle, type, data, bytes, name, count, options, values);
}
extern "C" [[gnu::visibility("default")]] CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type,
                                                                 const char* path, unsigned count,
                                                                 CUjit_option* options, void** values) {
  return cuLinkAddFile_v2(handle, type, path, count, options, values);
}
