// The API of modules and their functions.
#include <algorithm>

#include "capture/capture.hpp"
#include "module.hpp"
#include "newer_api.hpp"
#include "settings.hpp"

using namespace aiocuda::emulator;

namespace {

CUresult resolve_module(CUmodule handle, std::shared_ptr<Module>& module) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  module = modules().find(handle);
  return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Program> program;
  if (const CUresult error = Program::read(image, program)) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  return Module::load(entry.context(), program, *handle);
}

// The options tune a compiler that has nothing to do here: the code is compiled already.
CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned count, CUjit_option* options, void** values) {
  if (count > 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return cuModuleLoadData(handle, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* handle, const void* image) { return cuModuleLoadData(handle, image); }

CUresult cuModuleLoad(CUmodule* handle, const char* path) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Program> program;
  if (const CUresult error = Program::read_file(path, program)) return error;
  if (const CUresult error = capture::check_unsafe_call()) return error;
  return Module::load(entry.context(), program, *handle);
}

CUresult cuModuleUnload(CUmodule handle) {
  std::shared_ptr<Module> module;
  if (const CUresult error = resolve_module(handle, module)) return error;
  if (module->is_of_library()) return CUDA_ERROR_NOT_PERMITTED;  // it ends with its library
  if (const CUresult error = capture::check_unsafe_call()) return error;
  module->unload();
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (const CUresult error = check_initialised()) return error;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = settings().loads_eagerly ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  std::shared_ptr<Module> module;
  if (const CUresult error = resolve_module(handle, module)) return error;
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t index = module->program().find_kernel(name);
  if (index == Program::npos) return CUDA_ERROR_NOT_FOUND;
  *function = HandleTable<Function, CUfunction>::handle_of(*module->functions()[index]);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  std::shared_ptr<Module> module;
  if (const CUresult error = resolve_module(handle, module)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions().size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* out, unsigned count, CUmodule handle) {
  std::shared_ptr<Module> module;
  if (const CUresult error = resolve_module(handle, module)) return error;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t most = std::min<std::size_t>(count, module->functions().size());
  for (std::size_t each = 0; each < most; ++each) {
    out[each] = HandleTable<Function, CUfunction>::handle_of(*module->functions()[each]);
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle, const char* name) {
  std::shared_ptr<Module> module;
  if (const CUresult error = resolve_module(handle, module)) return error;
  return name != nullptr ? module->find_variable(name, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_attribute(function->description(), function->attributes(), attribute, *value);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  return set_attribute(function->description(), function->attributes(), attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS
                                                                                     : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  if (const CUresult error = check_initialised()) return error;
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  *name = function->description().name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  const auto& parameters = function->description().parameters;
  if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = parameters[index].offset_bytes;
  if (bytes != nullptr) *bytes = parameters[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction handle, std::size_t* count) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = function->description().parameters.size();
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  std::shared_ptr<Function> function;
  if (const CUresult error = enter_with_function(handle, function)) return error;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
  std::shared_ptr<Function> function;
  return enter_with_function(handle, function);
}
