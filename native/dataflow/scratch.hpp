// The working memory of a walk. The engine keeps that of the outermost walk, so it includes this file and not the walk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "placing.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

// Kept between walks, so that a short one allocates nothing.
template <class Value>
struct Scratch {
  std::vector<Tick> waits;
  // An argument that is made on the stream of its first user.
  struct Deferred {
    std::uint32_t argument;
    std::size_t output;
  };
  std::vector<Use> uses;
  std::vector<Tick> needs;
  std::vector<Value> outputs;
  std::vector<Deferred> deferred;
};

}  // namespace aiocuda::dataflow
