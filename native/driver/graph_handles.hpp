// Handles of graphs and executables, which end with what holds them.
//
// Always true: an executable's places in the devices' stores are given back once, when it is destroyed; where the
// engine is over, nothing is called.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "devices.hpp"

namespace aiocuda::driver {

struct GraphDeleter {
  Devices* devices = nullptr;

  void operator()(CUgraph graph) const noexcept {
    if (!devices->is_over()) devices->table().cuGraphDestroy(graph);
  }
};
using GraphHandle = std::unique_ptr<CUgraph_st, GraphDeleter>;

struct ExecutableDeleter {
  Devices* devices = nullptr;
  std::vector<std::uint64_t> places{};  // in the store of each device, by ordinal

  void operator()(CUgraphExec executable) const noexcept {
    if (devices->is_over()) return;
    {
      const RelaxedCaptures relaxed(
          devices->table());  // a function of the program's may drop it, in the middle of a capture
      devices->now().destroy(executable);
    }
    for (std::size_t device = 0; device < places.size(); ++device)
      if (places[device]) devices->at(static_cast<std::int32_t>(device)).executables.give_back(places[device]);
  }
};
using ExecutableHandle = std::unique_ptr<CUgraphExec_st, ExecutableDeleter>;

}  // namespace aiocuda::driver
