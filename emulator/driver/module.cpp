// The classes of module.hpp.
#include "module.hpp"

#include <algorithm>

#include "device.hpp"
#include "memory/memory.hpp"
#include "settings.hpp"

namespace aiocuda::emulator {

HandleTable<Module, CUmodule>& modules() {
  static auto* const table = new HandleTable<Module, CUmodule>;
  return *table;
}
HandleTable<Function, CUfunction>& functions() {
  static auto* const table = new HandleTable<Function, CUfunction>;
  return *table;
}
HandleTable<Library, CUlibrary>& libraries() {
  static auto* const table = new HandleTable<Library, CUlibrary>;
  return *table;
}
HandleTable<Kernel, CUkernel>& kernels() {
  static auto* const table = new HandleTable<Kernel, CUkernel>;
  return *table;
}

std::shared_ptr<Module> Module::load(Context& context, const std::shared_ptr<Program>& program,
                                     const std::vector<std::shared_ptr<FunctionAttributes>>& attributes,
                                     bool of_library) {
  std::shared_ptr<Image> image = program->load();
  if (!image) return nullptr;
  std::shared_ptr<Module> module(new Module(context.shared_from_this(), program, image, of_library));
  for (std::size_t each = 0; each < program->kernels().size(); ++each) {
    module->functions_.push_back(
        std::make_shared<Function>(module->context_, program, image, each, attributes[each], module->handle()));
    emulator::functions().add(module->functions_.back());
  }
  emulator::modules().add(module);
  return module;
}

CUresult Module::load(Context& context, const std::shared_ptr<Program>& program, CUmodule& handle) {
  if (const CUresult error = context.pass_gate()) return error;
  std::vector<std::shared_ptr<FunctionAttributes>> attributes;
  for (const KernelDescription& kernel : program->kernels()) {
    attributes.push_back(std::make_shared<FunctionAttributes>(kernel));
  }
  const std::shared_ptr<Module> module = load(context, program, attributes, false);
  if (!module) return CUDA_ERROR_INVALID_IMAGE;
  handle = module->handle();
  return CUDA_SUCCESS;
}

Module::~Module() {
  for (const std::uintptr_t address : known_variables_) memory::disown_module_variable(address);
}

CUresult Module::find_variable(const std::string& name, CUdeviceptr* address, std::size_t* bytes) {
  const ElfVariable* const variable = program_->find_variable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  const std::uintptr_t at = image_->base() + variable->offset;
  {
    const std::lock_guard lock(mutex_);
    if (known_variables_.insert(at).second) memory::adopt_module_variable(*context_, at, variable->bytes);
  }
  if (address != nullptr) *address = at;
  if (bytes != nullptr) *bytes = variable->bytes;
  return CUDA_SUCCESS;
}

void Module::unload() {
  for (const auto& function : functions_) emulator::functions().take(reinterpret_cast<CUfunction>(function.get()));
  modules().take(handle());
}

CUresult Library::make(const std::shared_ptr<Program>& program, CUlibrary& handle) {
  auto library = std::make_shared<Library>(program);
  for (std::size_t each = 0; each < program->kernels().size(); ++each) {
    library->kernels_.push_back(std::make_shared<Kernel>(library, each));
    emulator::kernels().add(library->kernels_.back());
  }
  handle = libraries().add(std::move(library));
  return CUDA_SUCCESS;
}

CUresult Library::module_in(Context& context, std::shared_ptr<Module>& module) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, loaded] : modules_) {
    if (id == context.id()) {
      module = loaded;
      return CUDA_SUCCESS;
    }
  }
  if (const CUresult error = context.pass_gate()) return error;
  std::vector<std::shared_ptr<FunctionAttributes>> attributes;
  attributes.reserve(kernels_.size());
  for (const auto& kernel : kernels_) attributes.push_back(kernel->attributes(context.device()));
  module = Module::load(context, program_, attributes, true);
  if (!module) return CUDA_ERROR_INVALID_IMAGE;
  modules_.emplace_back(context.id(), module);
  return CUDA_SUCCESS;
}

void Library::forget_context(const Context& context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(modules_, [&](const auto& each) { return each.first == context.id(); });
}

void Library::wait_for_contexts() {
  std::vector<std::shared_ptr<Context>> where;
  if (settings().loads_eagerly) {
    where = contexts().find_if([](const Context&) { return true; });
  } else {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, module] : modules_) where.push_back(module->context().shared_from_this());
  }
  for (const auto& context : where) static_cast<void>(context->synchronise_behind_gate());
}

void Library::unload() {
  wait_for_contexts();
  for (const auto& kernel : kernels_) emulator::kernels().take(kernel->handle());
  const std::lock_guard lock(mutex_);
  for (const auto& [id, module] : modules_) module->unload();
  modules_.clear();
}

Kernel::Kernel(const std::shared_ptr<Library>& library, std::size_t index)
    : library_(library), program_(library->program()), index_(index) {
  for (int device = 0; device < device_count(); ++device) {
    attributes_.push_back(std::make_shared<FunctionAttributes>(description()));
  }
}

CUresult Kernel::function_in(Context& context, std::shared_ptr<Function>& function) const {
  const std::shared_ptr<Library> library = library_.lock();
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  if (const CUresult error = library->module_in(context, module)) return error;
  function = module->functions()[index_];
  return CUDA_SUCCESS;
}

CUresult resolve_function(CUfunction handle, Context& current, std::shared_ptr<Function>& function) {
  function = functions().find(handle);
  if (function) return CUDA_SUCCESS;
  const std::shared_ptr<Kernel> kernel = kernels().find(reinterpret_cast<CUkernel>(handle));
  return kernel ? kernel->function_in(current, function) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult enter_with_function(CUfunction handle, std::shared_ptr<Function>& function) {
  const Entry entry = enter();
  return entry ? resolve_function(handle, entry.context(), function) : entry.error();
}

void unload_modules_of(Context& context) {
  for (const auto& module : modules().find_if([&](const Module& each) { return &each.context() == &context; })) {
    module->unload();
  }
  for (const auto& library : libraries().find_if([](const Library&) { return true; })) library->forget_context(context);
}

}  // namespace aiocuda::emulator
