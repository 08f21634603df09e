// Random programs of launches, the same for each seed.
#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "builder.hpp"

namespace aiocuda::driver::tests {

// Each launch reads and writes arrays that are there, or what launches before it yield.
class RandomLaunches {
 public:
  RandomLaunches(Builder& builder, const std::vector<nb::object>& arrays, std::mt19937& random) {
    auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    auto any = [&] { return ops.empty() || below(2) ? arrays[below(arrays.size())] : ops[below(ops.size())]; };
    std::vector<nb::object> roots;
    for (std::size_t i = 0, count = 2 + below(12); i < count; ++i) {
      std::vector<nb::object> reads;
      for (std::size_t left = below(3); left > 0; --left) reads.push_back(any());
      ops.push_back(builder.launch(reads, {any()}));
      if (below(2)) roots.push_back(ops.back());
    }
    roots.push_back(ops.back());
    root = builder.gather(roots);
  }

  // The operations by their places in the program.
  std::vector<std::size_t> numbers(const std::vector<const dataflow::Op*>& ordered) const {
    std::vector<std::size_t> found;
    for (const dataflow::Op* each : ordered) {
      const auto at = std::find_if(ops.begin(), ops.end(), [&](const nb::object& op) { return &op_of(op) == each; });
      found.push_back(static_cast<std::size_t>(at - ops.begin()));
    }
    return found;
  }

  std::vector<nb::object> ops;
  nb::object root;
};

}  // namespace aiocuda::driver::tests
