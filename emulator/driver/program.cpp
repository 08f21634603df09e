// Loads programs; see program.hpp. The dynamic loader takes two objects with the same path, or the
// same inode, for one, so each copy is a new file under a name that this process never uses again.
#include "program.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "abi/text_image.hpp"
#include "abi/thread_memory.hpp"
#include "checking/launch_checker.hpp"
#include "context.hpp"
#include "device.hpp"
#include "fault.hpp"
#include "graph/device_launch.hpp"
#include "grid.hpp"
#include "nvrtc/linking.hpp"
#include "settings.hpp"
#include "texture/texture.hpp"

namespace aiocuda::emulator {
namespace {

// Made when the first module is loaded; it lives as long as any.
const abi::Services& services() {
  const bool checks = emulator::settings().checks.any();
  static const abi::Services made{abi::abi_version,
                                  &fail_kernel,
                                  &abi::thread_memory,
                                  checks ? &checking::check_access : nullptr,
                                  &is_in_grid,
                                  &meet_grid,
                                  &texture::fetch_texture,
                                  &texture::access_surface,
                                  checks ? &checking::begin_checked_range : nullptr,
                                  checks ? &checking::note_meeting : nullptr,
                                  checks ? &checking::report_meeting : nullptr,
                                  checks ? &checking::report_misaligned : nullptr,
                                  &show_shared,
                                  &shared_of,
                                  &arrive_in_cluster,
                                  &has_met_cluster,
                                  &meet_cluster,
                                  &poll_others,
                                  &graph::launch_graph,
                                  &graph::current_graph};
  return made;
}

void say(const std::string& message) { std::fprintf(stderr, "emulated CUDA driver: %s\n", message.c_str()); }

void say_once_what_can_be_loaded(const char* found) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  say(std::string("asked to load ") + found +
      ", which only a GPU can run. On the emulated driver, pass CUDA C++ source and let NVRTC compile it.");
}

// A file that is gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& content) {
    std::error_code error;
    std::filesystem::path directory = std::filesystem::temp_directory_path(error);
    if (error) directory = "/tmp";
    path_ = directory / ("aiocuda-module-" + std::to_string(getpid()) + "-" + std::to_string(next_id()) + ".so");
    const int file = open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR | S_IXUSR);
    if (file < 0) {
      error_ = std::strerror(errno);
      path_.clear();
      return;
    }
    for (std::size_t written = 0; written < content.size();) {
      const ssize_t now = write(file, content.data() + written, content.size() - written);
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) {
        error_ = std::strerror(errno);
        break;
      }
      written += static_cast<std::size_t>(now);
    }
    close(file);
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& error() const noexcept { return error_; }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::string error_;
};

std::vector<KernelDescription> describe(const abi::Module& module) {
  std::vector<KernelDescription> kernels;
  for (std::uint32_t each = 0; each < module.kernel_count; ++each) {
    const abi::Kernel& kernel = *module.kernels[each];
    KernelDescription description{};
    description.name = kernel.name;
    description.parameters.assign(kernel.parameters, kernel.parameters + kernel.parameter_count);
    for (const abi::Parameter& parameter : description.parameters) {
      description.parameter_bytes = std::max<std::size_t>(description.parameter_bytes,
                                                          std::size_t{parameter.offset_bytes} + parameter.size_bytes);
    }
    description.static_shared_bytes = kernel.static_shared_bytes;
    description.local_bytes_per_thread = kernel.local_bytes_per_thread;
    description.max_threads_per_block =
        static_cast<int>(std::min<std::uint32_t>(kernel.max_threads_per_block, limits::max_threads_per_block));
    description.cluster = kernel.cluster;
    kernels.push_back(std::move(description));
  }
  return kernels;
}

}  // namespace

std::shared_ptr<Image> Image::load(const std::vector<std::byte>& file) {
  const TemporaryFile copy(file);
  if (!copy.error().empty()) {
    say("a module needs a temporary file to be loaded from, and writing it failed: " + copy.error() +
        " (TMPDIR names the directory)");
    return nullptr;
  }
  void* const library = dlopen(copy.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    say(std::string("a module cannot be loaded: ") + dlerror() +
        " (its directory must allow execution; TMPDIR names another)");
    return nullptr;
  }
  const auto entry = reinterpret_cast<abi::Entry>(dlsym(library, abi::entry_symbol));
  const abi::Module* const module = entry != nullptr ? entry() : nullptr;
  if (module == nullptr || module->version != abi::abi_version) {
    say(module == nullptr
            ? std::string("asked to load a shared object that is no compiled CUDA C++ module")
            : "a module was compiled for version " + std::to_string(module->version) +
                  " of the emulator, this one is version " + std::to_string(abi::abi_version) + ": compile it again");
    dlclose(library);
    return nullptr;
  }
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
    dlclose(library);
    return nullptr;
  }
  module->set_services(&services());
  std::shared_ptr<Image> image(new Image(library, module, map->l_addr));
  if (settings().checks.any()) image->facts_ = std::make_shared<const checking::ImageFacts>(file);
  return image;
}

Image::~Image() { dlclose(library_); }

CUresult Program::read(const void* image, std::shared_ptr<Program>& program) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (kind_of_image(image)) {
    case ImageKind::gpu_binary:
      say_once_what_can_be_loaded("a GPU's binary");
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ImageKind::ptx:
      return read_text(static_cast<const char*>(image), program);
    case ImageKind::unknown:
      return CUDA_ERROR_INVALID_IMAGE;
    case ImageKind::relocatable:
      return link({static_cast<const char*>(image), elf_bytes(image)}, program);
    case ImageKind::host_object:
      break;
  }
  const auto* const bytes = static_cast<const std::byte*>(image);
  return make({bytes, bytes + elf_bytes(image)}, program);
}

// A program that was compiled for a linker and is loaded alone.
CUresult Program::link(std::string object, std::shared_ptr<Program>& program) {
  nvrtc::LinkResult linked = nvrtc::link({{"the program", std::move(object)}});
  if (linked.status != nvrtc::LinkStatus::linked) {
    say("a program cannot be loaded before it is linked with what it wants:\n" + linked.log);
    return linked.status == nvrtc::LinkStatus::unresolved ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(linked.image.data());
  return make({bytes, bytes + linked.image.size()}, program);
}

// The text that the emulated NVRTC answers for PTX.
CUresult Program::read_text(const char* text, std::shared_ptr<Program>& program) {
  if (std::strstr(text, std::string(abi::text_image_marker).c_str()) == nullptr) {
    say_once_what_can_be_loaded("PTX");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  std::optional<std::string> image = abi::image_of_text(text);
  if (!image || image->size() < least_elf_bytes) return CUDA_ERROR_INVALID_PTX;
  const ImageKind kind = kind_of_image(image->data());
  if (kind == ImageKind::relocatable) return link(std::move(*image), program);
  if (kind != ImageKind::host_object) return CUDA_ERROR_INVALID_PTX;
  const auto* const bytes = reinterpret_cast<const std::byte*>(image->data());
  return make({bytes, bytes + image->size()}, program);
}

CUresult Program::read_file(const char* path, std::shared_ptr<Program>& program) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return CUDA_ERROR_FILE_NOT_FOUND;
  std::vector<char> content{std::istreambuf_iterator<char>(stream), {}};
  content.resize(content.size() + 64);  // zeros: the kind of even a short file can be looked at
  const ImageKind kind = kind_of_image(content.data());
  if ((kind == ImageKind::host_object || kind == ImageKind::relocatable) &&
      elf_bytes(content.data()) > content.size()) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  return read(content.data(), program);
}

CUresult Program::make(std::vector<std::byte> file, std::shared_ptr<Program>& program) {
  try {
    auto made = std::make_shared<Program>();
    made->unused_ = Image::load(file);
    if (!made->unused_) return CUDA_ERROR_INVALID_IMAGE;
    made->kernels_ = describe(made->unused_->module());
    made->variables_ = elf_variables(file);
    made->file_ = std::move(file);
    program = std::move(made);
    return CUDA_SUCCESS;
  } catch (const std::exception&) {  // lengths in a damaged image that nobody can allocate
    return CUDA_ERROR_INVALID_IMAGE;
  }
}

std::size_t Program::find_kernel(const std::string& name) const noexcept {
  const auto found =
      std::find_if(kernels_.begin(), kernels_.end(), [&](const auto& each) { return each.name == name; });
  return found == kernels_.end() ? npos : static_cast<std::size_t>(found - kernels_.begin());
}

const ElfVariable* Program::find_variable(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

std::shared_ptr<Image> Program::load() {
  {
    const std::lock_guard lock(mutex_);
    if (unused_) return std::exchange(unused_, nullptr);
  }
  return Image::load(file_);
}

}  // namespace aiocuda::emulator
