// What the tests of the emulated NVRTC use: programs compiled through its C functions, and modules loaded and
// run through the binary contract alone, as a driver would, but without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "abi/module_abi.hpp"

namespace nvrtc_tests {

struct Program {
  std::string source;
  std::vector<std::string> options = {};
  std::vector<std::string> name_expressions = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // include name, content
  std::string name = "kernels.cu";
};

struct Compiled {
  int result = -1;
  std::string log;
  std::string image;
  std::vector<std::string> lowered_names;  // of the name expressions

  bool succeeded() const { return result == 0; }
};

Compiled compile(const Program& program);

// How a launch ended that a kernel failed.
struct LaunchFailure : std::runtime_error {
  LaunchFailure(int error_, const std::string& message) : std::runtime_error(message), error(error_) {}
  int error;
};

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

class Module {
 public:
  explicit Module(const std::string& image);
  // Compiles and loads; the log of a failed compilation is the exception's text.
  explicit Module(const Program& program);
  explicit Module(const char* source) : Module(Program{source}) {}
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();

  const aiocuda::emulator::abi::Kernel& kernel(const std::string& name) const;
  std::size_t kernel_count() const;
  const std::vector<std::string>& lowered_names() const { return lowered_names_; }

  template <class T>
  T* variable(const std::string& symbol) const {
    return static_cast<T*>(address(symbol));
  }

  struct Geometry {
    Extent grid = {};
    Extent block = {};
    std::size_t dynamic_shared_bytes = 0;
    unsigned threads = 1;  // OS threads that share the blocks
  };

  template <class... A>
  void launch(const std::string& name, Geometry geometry, A... arguments) const {
    void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
    run(kernel(name), geometry, pointers);
  }

 private:
  void* address(const std::string& symbol) const;
  static void run(const aiocuda::emulator::abi::Kernel& kernel, const Geometry& geometry, void** arguments);

  void* handle_ = nullptr;
  const aiocuda::emulator::abi::Module* module_ = nullptr;
  std::vector<std::string> lowered_names_;
};

// Standard output and error of what `action` does, as another process would see them.
std::string captured_output(int descriptor, void (*action)(void*), void* argument);

template <class F>
std::string captured_output(int descriptor, F action) {
  return captured_output(descriptor, [](void* f) { (*static_cast<F*>(f))(); }, &action);
}

// A directory of the test's own, gone with it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// An environment variable, set while this lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::string& value);
  ~EnvironmentVariable();

 private:
  std::string name_;
  std::string before_;
  bool was_set_;
};

}  // namespace nvrtc_tests
