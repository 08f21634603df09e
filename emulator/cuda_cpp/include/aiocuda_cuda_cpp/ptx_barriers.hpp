// The barriers of inline PTX that lie in shared memory ("mbarrier"), as functions that the rewriter calls.
#pragma once

#include "ptx_arithmetic.hpp"

namespace aiocuda_device {
namespace ptx {

// A barrier's word: how many threads are missing in this phase, how many the next one waits for, the bytes that copies
// owe (negative where copies came first), and the parity of the phase. PTX leaves the layout open.
struct BarrierWord {
  unsigned long long missing : 20, expected : 20;
  long long owed_bytes : 23;
  unsigned long long parity : 1;
};
static_assert(sizeof(BarrierWord) == sizeof(Register));

inline void barrier_init(void* at, Register count) {
  const BarrierWord word{count, count, 0, 0};
  __atomic_store_n(static_cast<Register*>(at), put(word), __ATOMIC_SEQ_CST);
}
inline void barrier_invalidate(void* at) { __atomic_store_n(static_cast<Register*>(at), 0, __ATOMIC_SEQ_CST); }

// Threads that arrive, of which some do not come again, and bytes that are owed from now on. Gives the word as it was.
inline Register barrier_arrive(void* at, unsigned count, unsigned leaving, int bytes) {
  Register* const memory = static_cast<Register*>(at);
  Register before = __atomic_load_n(memory, __ATOMIC_SEQ_CST);
  for (;;) {
    BarrierWord word = get<BarrierWord>(before);
    if (count > word.missing) ::aiocuda_fail(719, "more threads arrive at an mbarrier than it was initialised for");
    word.missing -= count;
    word.expected -= leaving;
    word.owed_bytes += bytes;
    if (word.missing == 0 && word.owed_bytes == 0) {
      word.missing = word.expected;
      word.parity ^= 1;
    }
    if (__atomic_compare_exchange_n(memory, &before, put(word), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return before;
  }
}
inline unsigned barrier_missing(Register state) { return (unsigned)get<BarrierWord>(state).missing; }
inline Register barrier_parity(Register state) { return get<BarrierWord>(state).parity; }

// Whether the phase of this parity is over. Lets others go on first: who asks perhaps waits.
inline bool barrier_is_past(const void* at, Register parity) {
  ::aiocuda_yield();
  return barrier_parity(__atomic_load_n(static_cast<const Register*>(at), __ATOMIC_SEQ_CST)) != (parity & 1);
}

}  // namespace ptx
}  // namespace aiocuda_device
