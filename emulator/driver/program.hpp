// A compiled program as the user gave it, and the copies of it that are loaded. Each context runs a
// private copy, so its variables are its own; a copy is unmapped when its last launch has let it go.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/module_abi.hpp"
#include "api.hpp"
#include "checking/image_facts.hpp"
#include "elf.hpp"

namespace aiocuda::emulator {

// One loaded copy of a program.
class Image {
 public:
  // Null when the file cannot be loaded or is no module; says why on stderr.
  static std::shared_ptr<Image> load(const std::vector<std::byte>& file);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const abi::Module& module() const noexcept { return *module_; }
  std::uintptr_t base() const noexcept { return base_; }  // where it was loaded
  // Null where nothing is checked.
  const std::shared_ptr<const checking::ImageFacts>& facts() const noexcept { return facts_; }

 private:
  Image(void* library, const abi::Module* module, std::uintptr_t base)
      : library_(library), module_(module), base_(base) {}
  void* const library_;
  const abi::Module* const module_;
  const std::uintptr_t base_;
  std::shared_ptr<const checking::ImageFacts> facts_;
};

// The facts of a kernel that need no loaded copy.
struct KernelDescription {
  std::string name;
  std::vector<abi::Parameter> parameters;
  std::size_t parameter_bytes;  // of the packed buffer of all parameters
  std::size_t static_shared_bytes;
  std::size_t local_bytes_per_thread;
  int max_threads_per_block;
  abi::Dim3 cluster;  // of __cluster_dims__; all 0: none
};

class Program {
 public:
  // Reads an image in memory, or a file. Answers INVALID_IMAGE, NO_BINARY_FOR_GPU (what only a real
  // GPU can run; says so once on stderr), FILE_NOT_FOUND.
  static CUresult read(const void* image, std::shared_ptr<Program>& program);
  static CUresult read_file(const char* path, std::shared_ptr<Program>& program);

  const std::vector<KernelDescription>& kernels() const noexcept { return kernels_; }
  // The index of a kernel; npos when there is none of that name.
  std::size_t find_kernel(const std::string& name) const noexcept;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  // Null when there is none of that name.
  const ElfVariable* find_variable(const std::string& name) const;

  // A copy that nobody else has.
  std::shared_ptr<Image> load();

 private:
  static CUresult link(std::string object, std::shared_ptr<Program>& program);
  static CUresult read_text(const char* text, std::shared_ptr<Program>& program);
  static CUresult make(std::vector<std::byte> file, std::shared_ptr<Program>& program);

  std::vector<std::byte> file_;
  std::vector<KernelDescription> kernels_;
  std::unordered_map<std::string, ElfVariable> variables_;
  std::mutex mutex_;
  std::shared_ptr<Image> unused_;  // the copy it was described from, until somebody wants one
};

}  // namespace aiocuda::emulator
