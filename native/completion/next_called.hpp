// Who of a line is called next: the most urgent one that came first, but now and then whoever has waited longest.
#pragma once
#include <cstdint>

namespace aiocuda::completion {

// One call in so many goes to whoever has waited longest, so that nobody waits for ever.
inline constexpr std::uint64_t calls_to_longest = 8;

// Finds the place that is called after `calls` others; somebody waits. Places are in the order of their priorities, and
// those of one priority in the order of their numbers. `number` tells a place's number, and `last` the greatest place
// that its priority can have.
template <class Places, class Number, class Last>
auto next_called(Places& waiting, std::uint64_t calls, Number&& number, Last&& last) {
  auto next = waiting.begin();
  if ((calls + 1) % calls_to_longest != 0) return next;
  for (auto each = next; each != waiting.end(); each = waiting.upper_bound(last(each->first)))  // the first of each
    if (number(each->first) < number(next->first)) next = each;
  return next;
}

}  // namespace aiocuda::completion
