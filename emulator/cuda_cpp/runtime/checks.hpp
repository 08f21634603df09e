// What the runtime tells the driver where a module was compiled for checking: who has met whom, and which barriers and
// warp operations are used wrongly. In every other module these are nothing.
#pragma once

#include "block.hpp"

namespace aiocuda::emulator::runtime {

#ifdef AIOCUDA_CHECKED

// Before the threads that wait at the barrier go on: is it one barrier, and do all threads of the block come to it?
void check_barrier(const Block& b);
void check_shuffle(const Block& b, unsigned warp, unsigned lane, std::uint32_t members);
void check_mask(const Block& b, unsigned warp, unsigned lane, std::uint32_t mask, int line);
void tell_met(abi::Meeting meeting, unsigned warp, std::uint32_t lanes);

#else

inline void check_barrier(const Block&) {}
inline void check_shuffle(const Block&, unsigned, unsigned, std::uint32_t) {}
inline void check_mask(const Block&, unsigned, unsigned, std::uint32_t, int) {}
inline void tell_met(abi::Meeting, unsigned, std::uint32_t) {}

#endif

}  // namespace aiocuda::emulator::runtime
