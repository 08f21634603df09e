// Changes from one stack to another. `switch_stack(&from, to)` keeps the caller's registers on its own
// stack, leaves that stack's address in `from` and continues on `to`, which was left the same way or
// made by `new_stack`. It ends in an indirect jump, not a return: the processor predicts returns by its own
// stack of calls, which is that of the fiber left and mostly wrong for the one continued. Only what the calling
// convention calls callee-saved is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace aiocuda::emulator::runtime {

#if defined(__x86_64__)

extern "C" void aiocuda_switch_stack(void** from, void* to);
asm(R"(
.text
.hidden aiocuda_switch_stack
.globl aiocuda_switch_stack
.type aiocuda_switch_stack,@function
aiocuda_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  pop %rcx
  jmp *%rcx
.size aiocuda_switch_stack, .-aiocuda_switch_stack
)");

inline void switch_stack(void** from, void* to) { aiocuda_switch_stack(from, to); }

// A stack that ends at `top` (16-byte aligned) and starts in `entry`, which must not return.
inline void* new_stack(void* top, void (*entry)()) {
  auto** word = static_cast<void**>(top);
  *--word = nullptr;  // where a caller's return address would be: keeps the stack aligned
  *--word = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--word = nullptr;
  return word;
}

#elif defined(__aarch64__)

extern "C" void aiocuda_switch_stack(void** from, void* to);
asm(R"(
.text
.hidden aiocuda_switch_stack
.globl aiocuda_switch_stack
.type aiocuda_switch_stack,%function
aiocuda_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  br x30
.size aiocuda_switch_stack, .-aiocuda_switch_stack
)");

inline void switch_stack(void** from, void* to) { aiocuda_switch_stack(from, to); }

inline void* new_stack(void* top, void (*entry)()) {
  auto** frame = static_cast<void**>(top) - 20;
  for (int i = 0; i < 20; ++i) frame[i] = nullptr;
  frame[11] = reinterpret_cast<void*>(entry);  // x30, where `ret` goes
  return frame;
}

#else

// Elsewhere: the C library's contexts, kept at the top of each stack.
inline void switch_stack(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  ::swapcontext(&here, static_cast<ucontext_t*>(to));
}

inline void* new_stack(void* top, void (*entry)()) {
  constexpr std::size_t usable_bytes = 128 * 1024;
  auto* context =
      reinterpret_cast<ucontext_t*>((reinterpret_cast<std::uintptr_t>(top) - sizeof(ucontext_t)) & ~std::uintptr_t{63});
  ::getcontext(context);
  context->uc_stack.ss_sp = reinterpret_cast<char*>(context) - usable_bytes;
  context->uc_stack.ss_size = usable_bytes;
  context->uc_link = nullptr;
  ::makecontext(context, entry, 0);
  return context;
}

#endif

}  // namespace aiocuda::emulator::runtime
