// Answers whether memory is constant for a running kernel. Constant are the `__constant__` variables of its module, and
// the arguments of its launch that are `__grid_constant__`. An H100 takes the constant variables of other modules for
// global memory.
#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "abi/module_abi.hpp"
#include "units.hpp"

namespace abi = aiocuda::emulator::abi;

namespace aiocuda::emulator::runtime {
namespace {

// Of the launch, while a kernel runs that has `__grid_constant__` parameters; else null.
__thread void* const* arguments;
__thread const char* end_of_arguments;

// The exported variable of this module that an address lies in, or null.
const char* variable_at(const char* address) {
  static const char in_this_module = 0;
  Dl_info own{};
  Dl_info found{};
  ElfW(Sym)* symbol = nullptr;
  if (::dladdr(&in_this_module, &own) == 0) return nullptr;
  if (::dladdr1(address, &found, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0) return nullptr;
  // The ends of sections are symbols without a size.
  return found.dli_fbase == own.dli_fbase && symbol != nullptr && symbol->st_size != 0 ? found.dli_sname : nullptr;
}

// Of "_ZN5outer5inner4nameIiE": is it an instance of `name`?
bool is_instance(const char* symbol, const char* name) {
  if (std::strncmp(symbol, "_Z", 2) != 0) return false;
  symbol += 2;
  if (*symbol == 'N') ++symbol;
  while (*symbol >= '0' && *symbol <= '9') {
    std::size_t size = 0;
    for (; *symbol >= '0' && *symbol <= '9'; ++symbol) size = size * 10 + static_cast<std::size_t>(*symbol - '0');
    if (std::strncmp(symbol, name, size) == 0 && name[size] == '\0' && symbol[size] == 'I') return true;
    symbol += size;
  }
  return false;
}

bool is_empty(const abi::ConstantVariable& each) { return each.address == nullptr && each.instances_of == nullptr; }

bool is_instance_of_constant(const char* symbol) {
  for (const auto* unit = __start_aiocuda_units; unit != __stop_aiocuda_units; ++unit) {
    for (const auto* each = (*unit)->constants; !is_empty(*each); ++each) {
      if (each->instances_of != nullptr && is_instance(symbol, each->instances_of)) return true;
    }
  }
  return false;
}

// Those in functions, the last first.
abi::LocalConstant* first_local = nullptr;
bool list_is_locked = false;

bool is_local_constant(const char* address) {
  for (const auto* each = __atomic_load_n(&first_local, __ATOMIC_ACQUIRE); each != nullptr; each = each->next) {
    const auto* const begin = static_cast<const char*>(each->address);
    if (address >= begin && address <= begin + each->bytes) return true;
  }
  return false;
}

// One past the end belongs to a variable, as on a GPU, unless another begins there.
bool is_constant(const char* address) {
  bool ends_constant = false;
  bool has_templates = false;
  for (const auto* unit = __start_aiocuda_units; unit != __stop_aiocuda_units; ++unit) {
    for (const auto* each = (*unit)->constants; !is_empty(*each); ++each) {
      const auto* const begin = static_cast<const char*>(each->address);
      if (each->instances_of != nullptr) {
        has_templates = true;
      } else if (address >= begin && address < begin + each->bytes) {
        return true;
      } else if (address == begin + each->bytes) {
        ends_constant = true;
      }
    }
  }
  if (is_local_constant(address)) return true;
  if (!ends_constant && !has_templates) return false;
  if (const char* const here = variable_at(address)) return is_instance_of_constant(here);
  if (ends_constant) return true;
  const char* const before = variable_at(address - 1);
  return before != nullptr && is_instance_of_constant(before);
}

}  // namespace
}  // namespace aiocuda::emulator::runtime

using namespace aiocuda::emulator::runtime;

extern "C" {

[[gnu::visibility("hidden")]] int aiocuda_is_constant(const void* address) {
  return is_constant(static_cast<const char*>(address)) ? 1 : 0;
}
[[gnu::visibility("hidden")]] void aiocuda_keep_constant(abi::LocalConstant* constant) {
  if (__atomic_load_n(&constant->is_listed, __ATOMIC_ACQUIRE)) return;
  while (__atomic_exchange_n(&list_is_locked, true, __ATOMIC_ACQUIRE)) {
  }
  if (!constant->is_listed) {
    constant->next = first_local;
    __atomic_store_n(&first_local, constant, __ATOMIC_RELEASE);
    __atomic_store_n(&constant->is_listed, true, __ATOMIC_RELEASE);
  }
  __atomic_store_n(&list_is_locked, false, __ATOMIC_RELEASE);
}
// Around a range of blocks of a kernel that has `__grid_constant__` parameters. The arguments lie one behind the other.
[[gnu::visibility("hidden")]] void aiocuda_show_arguments(const abi::Launch* launch, unsigned bytes) {
  arguments = launch->arguments;
  end_of_arguments = static_cast<const char*>(launch->arguments[0]) + bytes;
}
[[gnu::visibility("hidden")]] void aiocuda_hide_arguments() { arguments = nullptr; }
[[gnu::visibility("hidden")]] const void* aiocuda_argument(unsigned index) { return arguments[index]; }

[[gnu::visibility("hidden")]] int aiocuda_is_grid_constant(const void* address) {
  return arguments != nullptr && address >= arguments[0] && address <= end_of_arguments ? 1 : 0;
}
}
