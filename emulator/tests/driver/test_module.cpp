// A module as the compiler of CUDA C++ would make it, by hand: kernels for the driver's tests.
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "abi/module_abi.hpp"

namespace abi = aiocuda::emulator::abi;

// Variables of the module: one of each context's own.
extern "C" {
__attribute__((visibility("default"))) int module_counter = 7;
__attribute__((visibility("default"))) float module_table[16] = {};
}

namespace {

const abi::Services* services = nullptr;

template <typename Value>
Value argument(const abi::Launch* launch, int index) {
  return *static_cast<const Value*>(launch->arguments[index]);
}

// add(int* out, int value): every block adds the value to its own element.
void add(const abi::Launch* launch, std::uint64_t first, std::uint64_t last) {
  int* const out = argument<int*>(launch, 0);
  for (std::uint64_t block = first; block < last; ++block) out[block] += argument<int>(launch, 1);
}

// append(int* log, int value): log[0] is a count, the rest what was appended.
void append(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  int* const log = argument<int*>(launch, 0);
  log[++log[0]] = argument<int>(launch, 1);
}

// wait_for(int* flag, int* started): says it has started, spins until the flag is set.
void wait_for(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  std::atomic_ref<int> flag(*argument<int*>(launch, 0)), started(*argument<int*>(launch, 1));
  started.store(1, std::memory_order_release);
  while (flag.load(std::memory_order_acquire) == 0) {
  }
}

// store(int* out, int value): writes, wherever that is.
void store(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  *const_cast<volatile int*>(argument<int*>(launch, 0)) = argument<int>(launch, 1);
}

// fail(int error): ends the launch with a CUresult.
void fail(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  services->fail(argument<int>(launch, 0), "failed on request");
}

// divide(int* out, int dividend, int divisor)
void divide(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  volatile int dividend = argument<int>(launch, 1), divisor = argument<int>(launch, 2);
#if defined(__x86_64__)
  int quotient;
  asm volatile("cltd; idivl %2" : "=a"(quotient) : "a"(dividend), "r"(static_cast<int>(divisor)) : "edx", "cc");
  *argument<int*>(launch, 0) = quotient;
#else
  if (divisor == 0) services->fail(719, "division by zero");
  *argument<int*>(launch, 0) = dividend / divisor;
#endif
}

ucontext_t outer, inner;
int* inner_target = nullptr;

void store_on_inner_stack() { *const_cast<volatile int*>(inner_target) = 1; }

// store_on_fiber(int* out): writes from a stack of its own, as a kernel with barriers does.
void store_on_fiber(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  static char stack[64 * 1024];
  inner_target = argument<int*>(launch, 0);
  getcontext(&inner);
  inner.uc_stack.ss_sp = stack;
  inner.uc_stack.ss_size = sizeof stack;
  inner.uc_link = &outer;
  makecontext(&inner, &store_on_inner_stack, 0);
  swapcontext(&outer, &inner);
}

// count(int* out): adds one to the module's own variable and stores it.
void count(const abi::Launch* launch, std::uint64_t, std::uint64_t) { *argument<int*>(launch, 0) = ++module_counter; }

struct alignas(32) Wide {
  double values[4];
};

// sum(double* out, Wide wide, char tail): a parameter with an alignment of its own.
void sum(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  const Wide& wide = *static_cast<const Wide*>(launch->arguments[1]);
  const bool aligned = reinterpret_cast<std::uintptr_t>(&wide) % alignof(Wide) == 0;
  *argument<double*>(launch, 0) = aligned ? wide.values[0] + wide.values[3] + argument<char>(launch, 2) : -1;
}

// shape(unsigned* out): what the launch says of itself.
void shape(const abi::Launch* launch, std::uint64_t first, std::uint64_t) {
  if (first != 0) return;
  std::uint32_t* out = argument<std::uint32_t*>(launch, 0);
  const std::uint32_t values[] = {launch->grid.x,
                                  launch->grid.y,
                                  launch->grid.z,
                                  launch->block.x,
                                  launch->block.y,
                                  launch->block.z,
                                  static_cast<std::uint32_t>(launch->dynamic_shared_bytes)};
  for (const std::uint32_t value : values) *out++ = value;
}

// set_condition(unsigned* condition, unsigned value): as cudaGraphSetConditional does.
void set_condition(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  std::atomic_ref<unsigned>(*argument<unsigned*>(launch, 0)).store(argument<unsigned>(launch, 1));
}

// count_down(unsigned* condition, int* count): one less, and the condition says whether there is more.
void count_down(const abi::Launch* launch, std::uint64_t, std::uint64_t) {
  int& count = *argument<int*>(launch, 1);
  count -= 1;
  std::atomic_ref<unsigned>(*argument<unsigned*>(launch, 0)).store(count > 0 ? 1 : 0);
}

// meet(int* out, int absent): each block says that it is there, meets all others, and counts those that have said so;
// but the block `absent` ends before.
void meet(const abi::Launch* launch, std::uint64_t first, std::uint64_t last) {
  int* const out = argument<int*>(launch, 0);
  if (last != first + 1) services->fail(719, "blocks that wait for one another run on one thread");
  if (static_cast<int>(first) == argument<int>(launch, 1)) return;
  for (int round = 1; round <= 3; ++round) {
    std::atomic_ref<int>(out[first]).store(round);
    services->meet_grid();
    int there = 0;
    for (std::uint32_t block = 0; block < launch->grid.x; ++block)
      there += std::atomic_ref<int>(out[block]).load() == round;
    if (there == static_cast<int>(launch->grid.x)) ++out[launch->grid.x + first];
    services->meet_grid();
  }
}

void nothing(const abi::Launch*, std::uint64_t, std::uint64_t) {}

constexpr std::uint32_t pointer = abi::parameter_is_pointer;
constexpr abi::Parameter pointer_and_int[] = {{0, 8, pointer}, {8, 4, 0}};
constexpr abi::Parameter two_pointers[] = {{0, 8, pointer}, {8, 8, pointer}};
constexpr abi::Parameter one_pointer[] = {{0, 8, pointer}};
constexpr abi::Parameter one_int[] = {{0, 4, 0}};
constexpr abi::Parameter pointer_and_two_ints[] = {{0, 8, pointer}, {8, 4, 0}, {12, 4, 0}};
constexpr abi::Parameter pointer_wide_char[] = {{0, 8, pointer}, {32, 32, 0}, {64, 1, 0}};

constexpr abi::Kernel kernels[] = {
    {"add", 2, pointer_and_int, 0, 0, 1024, &add},
    {"append", 2, pointer_and_int, 0, 0, 1024, &append},
    {"wait_for", 2, two_pointers, 0, 0, 1024, &wait_for},
    {"store", 2, pointer_and_int, 0, 0, 1024, &store},
    {"fail", 1, one_int, 0, 0, 1024, &fail},
    {"divide", 3, pointer_and_two_ints, 0, 0, 1024, &divide},
    {"store_on_fiber", 1, one_pointer, 0, 0, 1024, &store_on_fiber},
    {"count", 1, one_pointer, 0, 0, 1024, &count},
    {"sum", 3, pointer_wide_char, 0, 0, 1024, &sum},
    {"shape", 1, one_pointer, 0, 0, 1024, &shape},
    {"set_condition", 2, pointer_and_int, 0, 0, 1024, &set_condition},
    {"count_down", 2, two_pointers, 0, 0, 1024, &count_down},
    {"meet", 2, pointer_and_int, 0, 0, 1024, &meet},
    {"nothing", 0, nullptr, 0, 0, 1024, &nothing},
    {"bounded", 0, nullptr, 40 * 1024, 24, 64, &nothing},
};

template <std::size_t... Index>
constexpr auto pointers_to_kernels(std::index_sequence<Index...>) {
  struct Pointers {
    const abi::Kernel* values[sizeof...(Index)];
  };
  return Pointers{{&kernels[Index]...}};
}
constexpr auto kernel_pointers = pointers_to_kernels(std::make_index_sequence<sizeof kernels / sizeof kernels[0]>());

constexpr abi::Module module_description{abi::abi_version, sizeof kernels / sizeof kernels[0], kernel_pointers.values,
                                         [](const abi::Services* given) { services = given; }};

}  // namespace

extern "C" __attribute__((visibility("default"))) const abi::Module* aiocuda_emulator_module() {
  return &module_description;
}
