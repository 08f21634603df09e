// Modules and their functions (of one context), libraries and their kernels (of all contexts). A
// library makes a module in each context that uses it; a kernel stands for the function there.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context.hpp"
#include "program.hpp"

namespace aiocuda::emulator {

// The attributes that a program can set on a function. A library's kernel has one set for each device.
struct FunctionAttributes {
  std::atomic<int> max_dynamic_shared_bytes;
  std::atomic<int> preferred_shared_carveout{-1};
  // Of clusters: the extents that every launch has, all 0 where it is the launch's matter; whether a cluster may be
  // larger than every GPU with clusters can run.
  std::array<std::atomic<int>, 3> cluster{};
  std::atomic<bool> allows_non_portable_cluster{false};
  std::atomic<int> cluster_scheduling{0};
  // All 0 unless each extent is known: a program sets one after the other.
  abi::Dim3 required_cluster() const noexcept {
    const abi::Dim3 extents{static_cast<unsigned>(cluster[0].load(std::memory_order_relaxed)),
                            static_cast<unsigned>(cluster[1].load(std::memory_order_relaxed)),
                            static_cast<unsigned>(cluster[2].load(std::memory_order_relaxed))};
    return extents.x != 0 && extents.y != 0 && extents.z != 0 ? extents : abi::Dim3{};
  }
  explicit FunctionAttributes(const KernelDescription& kernel);
};

CUresult get_attribute(const KernelDescription& kernel, const FunctionAttributes& attributes,
                       CUfunction_attribute attribute, int& value);
CUresult set_attribute(const KernelDescription& kernel, FunctionAttributes& attributes, CUfunction_attribute attribute,
                       int value);

class Module;

// A kernel loaded in a context. A launch holds it, so its code stays loaded until the launch has ended.
class Function {
 public:
  Function(std::shared_ptr<Context> context, std::shared_ptr<Program> program, std::shared_ptr<Image> image,
           std::size_t index, std::shared_ptr<FunctionAttributes> attributes, CUmodule module)
      : context_(std::move(context)),
        program_(std::move(program)),
        image_(std::move(image)),
        index_(index),
        attributes_(std::move(attributes)),
        module_(module) {}

  Context& context() const noexcept { return *context_; }
  const KernelDescription& description() const noexcept { return program_->kernels()[index_]; }
  const abi::Kernel& code() const noexcept { return *image_->module().kernels[index_]; }
  const Image& image() const noexcept { return *image_; }
  FunctionAttributes& attributes() const noexcept { return *attributes_; }
  CUmodule module() const noexcept { return module_; }
  bool is_kernel_of(const Program& program, std::size_t index) const noexcept {
    return program_.get() == &program && index_ == index;
  }

 private:
  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Program> program_;
  const std::shared_ptr<Image> image_;
  const std::size_t index_;
  const std::shared_ptr<FunctionAttributes> attributes_;
  const CUmodule module_;
};

class Module {
 public:
  // `attributes` has one entry for each kernel of the program. Null when the program cannot be loaded.
  static std::shared_ptr<Module> load(Context& context, const std::shared_ptr<Program>& program,
                                      const std::vector<std::shared_ptr<FunctionAttributes>>& attributes,
                                      bool of_library);
  // Loads a program's own module: its functions have their own attributes.
  static CUresult load(Context& context, const std::shared_ptr<Program>& program, CUmodule& handle);
  ~Module();

  Context& context() const noexcept { return *context_; }
  bool is_of_library() const noexcept { return of_library_; }
  const Program& program() const noexcept { return *program_; }
  const std::vector<std::shared_ptr<Function>>& functions() const noexcept { return functions_; }
  CUmodule handle() const noexcept { return reinterpret_cast<CUmodule>(const_cast<Module*>(this)); }
  // A variable's address and size. NOT_FOUND when the module has none of that name.
  CUresult find_variable(const std::string& name, CUdeviceptr* address, std::size_t* bytes);
  // Ends the life of the handles of its functions and of itself.
  void unload();

 private:
  Module(std::shared_ptr<Context> context, std::shared_ptr<Program> program, std::shared_ptr<Image> image,
         bool of_library)
      : context_(std::move(context)), program_(std::move(program)), image_(std::move(image)), of_library_(of_library) {}

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<Program> program_;
  const std::shared_ptr<Image> image_;
  const bool of_library_;
  std::vector<std::shared_ptr<Function>> functions_;
  std::mutex mutex_;
  std::set<std::uintptr_t> known_variables_;  // told to the memory half
};

class Kernel;

class Library {
 public:
  static CUresult make(const std::shared_ptr<Program>& program, CUlibrary& handle);

  const std::shared_ptr<Program>& program() const noexcept { return program_; }
  const std::vector<std::shared_ptr<Kernel>>& kernels() const noexcept { return kernels_; }
  CUlibrary handle() const noexcept { return reinterpret_cast<CUlibrary>(const_cast<Library*>(this)); }
  // The library's module in a context, loaded at its first use there.
  CUresult module_in(Context& context, std::shared_ptr<Module>& module);
  void forget_context(const Context& context);
  // Waits for all work of the contexts where it is loaded, as NVIDIA's driver does (seen on an H200 with 580.159.04):
  // those that have used it or, where modules are loaded eagerly, every one.
  void unload();

  explicit Library(std::shared_ptr<Program> program) : program_(std::move(program)) {}

 private:
  void wait_for_contexts();

  const std::shared_ptr<Program> program_;
  std::vector<std::shared_ptr<Kernel>> kernels_;
  std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Module>>> modules_;  // by context id
};

class Kernel {
 public:
  Kernel(const std::shared_ptr<Library>& library, std::size_t index);

  std::shared_ptr<Library> library() const noexcept { return library_.lock(); }
  const KernelDescription& description() const noexcept { return program_->kernels()[index_]; }
  const std::shared_ptr<FunctionAttributes>& attributes(CUdevice device) const noexcept {
    return attributes_[static_cast<std::size_t>(device)];
  }
  CUkernel handle() const noexcept { return reinterpret_cast<CUkernel>(const_cast<Kernel*>(this)); }
  CUresult function_in(Context& context, std::shared_ptr<Function>& function) const;
  // Is it this kernel, in some context?
  bool stands_for(const Function& function) const noexcept { return function.is_kernel_of(*program_, index_); }

 private:
  const std::weak_ptr<Library> library_;  // which owns this
  const std::shared_ptr<Program> program_;
  const std::size_t index_;
  std::vector<std::shared_ptr<FunctionAttributes>> attributes_;  // by device
};

HandleTable<Module, CUmodule>& modules();
HandleTable<Function, CUfunction>& functions();
HandleTable<Library, CUlibrary>& libraries();
HandleTable<Kernel, CUkernel>& kernels();

// The function behind a handle. The handle is a function's, or that of a kernel, which stands for its function in the
// current context. INVALID_HANDLE when it is neither.
CUresult resolve_function(CUfunction handle, Context& current, std::shared_ptr<Function>& function);
// The function that a handle means in the current context, which a call enters.
CUresult enter_with_function(CUfunction handle, std::shared_ptr<Function>& function);

void unload_modules_of(Context& context);

}  // namespace aiocuda::emulator
