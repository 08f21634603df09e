// The races that were found and that nobody has taken yet, as text for whoever asks. Not internally
// synchronised: the checker holds its lock.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "checking/access.hpp"
#include "checking/operation.hpp"

namespace aiocuda::emulator::checking {

struct Race {
  std::shared_ptr<const Operation> first, second;  // in the order of their submission
  bool first_writes = false, second_writes = false;
  std::uintptr_t begin = 0, end = 0;  // the first of the ranges that both touch
  std::uintptr_t last_end = 0;        // the end of the last one
  std::size_t range_count = 0;
  std::size_t bytes = 0;   // of all ranges
  std::string allocation;  // where `begin` is, in words
};

class Reports {
 public:
  void add(const Race& race);
  // One JSON object a line.
  std::string text();
  void clear();
  bool empty() const noexcept { return kept_.empty(); }

 private:
  // A program that races in a loop would fill the memory with what is one mistake.
  static constexpr std::size_t most_kept = 1000;
  std::vector<Race> kept_;
  std::size_t not_kept_ = 0;
};

}  // namespace aiocuda::emulator::checking
