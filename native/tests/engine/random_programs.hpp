// Random programs of fills and copies, and the races that work has which a driver was given.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "whole_engine.hpp"

namespace aiocuda::driver::tests {

// The bytes that a piece of work touches: (address, does it write there).
inline std::vector<std::pair<std::uint64_t, bool>> touched(const FakeDriver::Work& work) {
  switch (work.function) {
    case Function::cuMemcpyAsync:
      return {{work.arguments[0], true}, {work.arguments[1], false}};
    case Function::cuMemsetD8Async:
    case Function::cuMemsetD16Async:
    case Function::cuMemsetD32Async:
    case Function::cuMemsetD2D8Async:
    case Function::cuMemsetD2D16Async:
    case Function::cuMemsetD2D32Async:
    case Function::cuMemAllocFromPoolAsync:
    case Function::cuMemFreeAsync:
      return {{work.arguments[0], true}};
    default:
      return {};
  }
}

inline constexpr std::uint64_t array_bytes = 64;  // memory of the fake driver begins at multiples of 2 MiB

// Two pieces of one operation are in no order that matters, and they are on one stream.
inline std::string first_race(const FakeDriver& driver) {
  const std::vector<FakeDriver::Work> all = driver.work();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (const auto& [a, writes_a] : touched(all[i]))
        for (const auto& [b, writes_b] : touched(all[j]))
          if (a / 4096 == b / 4096 && (writes_a || writes_b) && !all[i].is_after(all[j]) && !all[j].is_after(all[i]))
            return "work " + std::to_string(j) + " (" + name_of(all[j].function) + ") and " + std::to_string(i) + " (" +
                   name_of(all[i].function) + ") of " + std::to_string(all.size());
  return "";
}

// Fills and copies between arrays that are there and arrays that are made for them, in branches.
inline nb::object random_program(WholeEngine& engine, std::mt19937& random) {
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  std::vector<nb::object> made, roots;
  auto any = [&] {
    return made.empty() || below(2) ? engine.arrays[below(engine.arrays.size())] : made[below(made.size())];
  };
  for (std::size_t i = 0, count = 2 + below(8); i < count; ++i) {
    nb::object op;
    switch (below(4)) {
      case 0:
        op = engine.create(array_bytes, 0, below(2) ? 16 : 4, complex);
        break;
      case 1:
        op = engine.fill(any(), 16);
        break;
      case 2:
        op = engine.copy(engine.create(array_bytes, 0, 0, complex), any());
        break;
      default:
        op = engine.copy(any(), any());
    }
    made.push_back(op);
    if (below(2)) roots.push_back(op);
  }
  roots.push_back(made.back());
  return engine.gather(roots);
}

}  // namespace aiocuda::driver::tests
