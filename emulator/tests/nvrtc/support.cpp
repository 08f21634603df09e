// See support.hpp.
#include "support.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "abi/thread_memory.hpp"
#include "nvrtc_functions.hpp"

namespace nvrtc_tests {
namespace {

namespace abi = aiocuda::emulator::abi;

thread_local sigjmp_buf* current_launch = nullptr;
thread_local int failed_with = 0;
thread_local std::string failure_message;

[[noreturn]] void fail_launch(std::int32_t error, const char* message) {
  failed_with = error;
  failure_message = message;
  siglongjmp(*current_launch, 1);
}

const abi::Services services{abi::abi_version, &fail_launch, &abi::thread_memory};

// Runs a range of blocks; false where the kernel failed, with failed_with and failure_message set.
bool run_range(const abi::Kernel& kernel, const abi::Launch& launch, std::uint64_t first, std::uint64_t last) {
  sigjmp_buf here;
  current_launch = &here;
  if (sigsetjmp(here, 0) != 0) return false;
  kernel.run(&launch, first, last);
  return true;
}

}  // namespace

Compiled compile(const Program& program) {
  std::vector<const char*> contents;
  std::vector<const char*> names;
  for (const auto& [name, content] : program.headers) {
    names.push_back(name.c_str());
    contents.push_back(content.c_str());
  }
  std::vector<const char*> options;
  for (const std::string& option : program.options) options.push_back(option.c_str());
  Compiled compiled;
  void* handle = nullptr;
  compiled.result = nvrtcCreateProgram(&handle, program.source.c_str(), program.name.c_str(),
                                       static_cast<int>(contents.size()), contents.data(), names.data());
  if (compiled.result != 0) return compiled;
  for (const std::string& expression : program.name_expressions) nvrtcAddNameExpression(handle, expression.c_str());
  compiled.result = nvrtcCompileProgram(handle, static_cast<int>(options.size()), options.data());
  std::size_t size = 0;
  nvrtcGetProgramLogSize(handle, &size);
  compiled.log.resize(size);
  nvrtcGetProgramLog(handle, compiled.log.data());
  compiled.log.resize(size - 1);
  if (compiled.succeeded()) {
    nvrtcGetCUBINSize(handle, &size);
    compiled.image.resize(size);
    nvrtcGetCUBIN(handle, compiled.image.data());
    for (const std::string& expression : program.name_expressions) {
      const char* lowered = nullptr;
      const int result = nvrtcGetLoweredName(handle, expression.c_str(), &lowered);
      compiled.lowered_names.emplace_back(result == 0 ? lowered : "");
    }
  }
  nvrtcDestroyProgram(&handle);
  return compiled;
}

Module::Module(const Program& program) {
  Compiled compiled = compile(program);
  if (!compiled.succeeded()) throw std::runtime_error("compilation failed:\n" + compiled.log);
  lowered_names_ = std::move(compiled.lowered_names);
  Module loaded(compiled.image);
  std::swap(handle_, loaded.handle_);
  std::swap(module_, loaded.module_);
}

Module::Module(const std::string& image) {
  static std::atomic<unsigned> serial{0};
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("nvrtc-test-" + std::to_string(::getpid()) + "-" + std::to_string(serial++) + ".so");
  std::ofstream(path, std::ios::binary) << image;
  handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* error = handle_ == nullptr ? ::dlerror() : nullptr;
  const std::string message = error == nullptr ? "" : error;
  std::filesystem::remove(path);
  if (handle_ == nullptr) throw std::runtime_error("dlopen: " + message);
  module_ = reinterpret_cast<abi::Entry>(::dlsym(handle_, abi::entry_symbol))();
  module_->set_services(&services);
}

Module::~Module() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

const abi::Kernel& Module::kernel(const std::string& name) const {
  std::string known;
  for (std::uint32_t i = 0; i < module_->kernel_count; ++i) {
    if (name == module_->kernels[i]->name) return *module_->kernels[i];
    known += std::string(" ") + module_->kernels[i]->name;
  }
  throw std::runtime_error("no kernel " + name + " among" + known);
}

std::size_t Module::kernel_count() const { return module_->kernel_count; }

void* Module::address(const std::string& symbol) const {
  void* found = ::dlsym(handle_, symbol.c_str());
  if (found == nullptr) throw std::runtime_error("no symbol " + symbol);
  return found;
}

void Module::run(const abi::Kernel& kernel, const Geometry& geometry, void** arguments) {
  const abi::Launch launch{{geometry.grid.x, geometry.grid.y, geometry.grid.z},
                           {geometry.block.x, geometry.block.y, geometry.block.z},
                           geometry.dynamic_shared_bytes,
                           arguments,
                           {}};
  const std::uint64_t blocks = static_cast<std::uint64_t>(geometry.grid.x) * geometry.grid.y * geometry.grid.z;
  if (geometry.threads == 1) {
    if (!run_range(kernel, launch, 0, blocks)) throw LaunchFailure(failed_with, failure_message);
    return;
  }
  std::atomic<int> error{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < geometry.threads; ++i) {
    threads.emplace_back([&, i] {
      const std::uint64_t first = blocks * i / geometry.threads;
      const std::uint64_t last = blocks * (i + 1) / geometry.threads;
      if (!run_range(kernel, launch, first, last)) error = failed_with;
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error != 0) throw LaunchFailure(error, "on another thread");
}

std::string captured_output(int descriptor, void (*action)(void*), void* argument) {
  const ScratchDirectory scratch;
  const std::string path = scratch.path() / "output";
  std::fflush(nullptr);
  const int kept = ::dup(descriptor);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, descriptor);
  ::close(file);
  action(argument);
  std::fflush(nullptr);
  ::dup2(kept, descriptor);
  ::close(kept);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "nvrtc-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

EnvironmentVariable::EnvironmentVariable(std::string name, const std::string& value) : name_(std::move(name)) {
  const char* before = std::getenv(name_.c_str());
  was_set_ = before != nullptr;
  before_ = was_set_ ? before : "";
  ::setenv(name_.c_str(), value.c_str(), 1);
}

EnvironmentVariable::~EnvironmentVariable() {
  was_set_ ? ::setenv(name_.c_str(), before_.c_str(), 1) : ::unsetenv(name_.c_str());
}

}  // namespace nvrtc_tests
