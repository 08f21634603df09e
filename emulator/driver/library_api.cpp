// The API of libraries and their kernels.
#include <algorithm>

#include "capture/capture.hpp"
#include "module.hpp"
#include "newer_api.hpp"

using namespace aiocuda::emulator;

namespace {

CUresult resolve_library(CUlibrary handle, std::shared_ptr<Library>& library) {
  if (const CUresult error = check_initialised()) return error;
  library = libraries().find(handle);
  return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult resolve_kernel(CUkernel handle, std::shared_ptr<Kernel>& kernel) {
  if (const CUresult error = check_initialised()) return error;
  kernel = kernels().find(handle);
  return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_options(unsigned jit_count, CUjit_option* jit_options, void** jit_values, unsigned count,
                       CUlibraryOption* options) {
  if (jit_count > 0 && (jit_options == nullptr || jit_values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return count > 0 && options == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// The library's module in the current context.
CUresult enter_with_module(CUlibrary handle, std::shared_ptr<Module>& module) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Library> library;
  if (const CUresult error = resolve_library(handle, library)) return error;
  return library->module_in(entry.context(), module);
}

}  // namespace

// The image is copied, so CU_LIBRARY_BINARY_IS_PRESERVED has nothing to add, and the options for a
// compiler have nothing to do: the code is compiled already.
CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option* jit_options, void** jit_values,
                           unsigned jit_count, CUlibraryOption* options, void**, unsigned count) {
  if (const CUresult error = check_initialised()) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_options(jit_count, jit_options, jit_values, count, options)) return error;
  std::shared_ptr<Program> program;
  if (const CUresult error = Program::read(image, program)) return error;
  return Library::make(program, *handle);
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* jit_options, void** jit_values,
                               unsigned jit_count, CUlibraryOption* options, void**, unsigned count) {
  if (const CUresult error = check_initialised()) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = check_options(jit_count, jit_options, jit_values, count, options)) return error;
  std::shared_ptr<Program> program;
  if (const CUresult error = Program::read_file(path, program)) return error;
  return Library::make(program, *handle);
}

CUresult cuLibraryUnload(CUlibrary handle) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const std::shared_ptr<Library> library = libraries().take(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  library->unload();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  std::shared_ptr<Library> library;
  if (const CUresult error = resolve_library(handle, library)) return error;
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t index = library->program()->find_kernel(name);
  if (index == Program::npos) return CUDA_ERROR_NOT_FOUND;
  *kernel = library->kernels()[index]->handle();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  if (const CUresult error = resolve_library(handle, library)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels().size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned count, CUlibrary handle) {
  std::shared_ptr<Library> library;
  if (const CUresult error = resolve_library(handle, library)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t most = std::min<std::size_t>(count, library->kernels().size());
  for (std::size_t each = 0; each < most; ++each) out[each] = library->kernels()[each]->handle();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  std::shared_ptr<Module> module;
  if (const CUresult error = enter_with_module(handle, module)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = module->handle();
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle, const char* name) {
  std::shared_ptr<Module> module;
  if (const CUresult error = enter_with_module(handle, module)) return error;
  return name != nullptr ? module->find_variable(name, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

// The compiler makes no `__managed__` variables, so none can be found.
CUresult cuLibraryGetManaged(CUdeviceptr*, std::size_t*, CUlibrary handle, const char* name) {
  std::shared_ptr<Library> library;
  if (const CUresult error = resolve_library(handle, library)) return error;
  return name != nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  if (const CUresult error = kernel->function_in(entry.context(), function)) return error;
  *out = HandleTable<Function, CUfunction>::handle_of(*function);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Library> library = kernel->library();
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  *out = library->handle();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  if (const CUresult error = check_initialised()) return error;
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  *name = kernel->description().name.c_str();
  return CUDA_SUCCESS;
}

// A kernel belongs to no context, but CUDA answers this only where one is current.
CUresult cuKernelGetParamInfo(CUkernel handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  const auto& parameters = kernel->description().parameters;
  if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset_bytes;
  if (bytes != nullptr) *bytes = parameters[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamCount(CUkernel handle, std::size_t* count) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = kernel->description().parameters.size();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_attribute(kernel->description(), *kernel->attributes(device), attribute, *value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  return set_attribute(kernel->description(), *kernel->attributes(device), attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  std::shared_ptr<Kernel> kernel;
  if (const CUresult error = resolve_kernel(handle, kernel)) return error;
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}
