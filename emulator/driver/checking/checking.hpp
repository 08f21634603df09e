// The process's checker of races, and the functions with which a program takes its reports.
#pragma once
#include <cstdint>

#include "checking/checker.hpp"

namespace aiocuda::emulator::checking {

// Null unless AIOCUDA_EMULATOR_CHECK asks for it. Never goes away.
Checker* checker() noexcept;

}  // namespace aiocuda::emulator::checking

// Copies the reports of races found so far, a JSON object a line, and forgets them, if they take at most
// `capacity` bytes; answers how many bytes they take either way. 0: none, or nothing is checked.
extern "C" [[gnu::visibility("default")]] std::size_t aiocuda_emulator_take_race_reports(char* text,
                                                                                         std::size_t capacity);

// Waits until all work that was submitted has ended, in every context, so that it is in the reports. Answers 0 where
// some has not ended after that time: a kernel may wait for something that only the caller will do. In a forked child
// there is nothing to wait for.
extern "C" [[gnu::visibility("default")]] int aiocuda_emulator_finish_work(std::uint64_t patience_ms);
