// Memory that graphs allocate and free. An allocation has its addresses from the day its node is made, and memory
// from the first launch that needs it; it can be touched between the piece of work that allocates it and the one that
// frees it, and is a fault outside of that. Whether it is allocated is also known in the order of submission, so that
// a launch or a free that cannot be is refused at the call.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "memory/allocation.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::graph {

class GraphAllocation : public std::enable_shared_from_this<GraphAllocation> {
 public:
  static CUresult make(const CUmemPoolProps& properties, std::span<const CUmemAccessDesc> access, std::size_t bytes,
                       std::shared_ptr<GraphAllocation>& made);
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;

  std::uintptr_t address() const noexcept { return block_.address; }
  std::size_t bytes() const noexcept { return bytes_; }
  CUdevice device() const noexcept;

  // The graph with its allocation node.
  void set_owner(std::uint64_t graph_id);
  // A graph wants a node that frees it. INVALID_VALUE: one that may not (see cuGraphAddMemAllocNode).
  CUresult add_free_node(std::uint64_t graph_id);
  // INVALID_VALUE where the host may not free it now: its own graph does, or it is not allocated.
  CUresult check_free_by_host() const;

  // In the order of submission.
  bool is_allocated() const;
  void set_allocated(bool allocated);

  // Takes memory for it from its device, if it has none; false where there is not enough.
  bool back();
  // A launch that is submitted, or runs, or an executable that needs it again keeps it from being trimmed.
  void begin_use();
  void end_use();
  // The executable has gone, that it was backed for.
  void unback();

  // In the order of the work: from here on its bytes can be touched, or cannot.
  void open();
  void shut() noexcept;

  struct Registry;

 private:
  GraphAllocation(memory::PhysicalMemory& memory, const memory::Block& block, std::size_t bytes)
      : memory_(memory), block_(block), bytes_(bytes) {}
  void unback_if_unused();

  memory::PhysicalMemory& memory_;
  const memory::Block block_;
  const std::size_t bytes_;
  std::shared_ptr<memory::Allocation> listed_;

  // Under the mutex of all of them.
  std::uint64_t owner_ = 0;
  bool is_freed_in_owner_ = false;
  bool is_freed_elsewhere_ = false;
  bool is_allocated_ = false;
  bool is_backed_ = false;
  bool is_wanted_ = false;  // by an executable
  int uses_ = 0;
  std::shared_ptr<GraphAllocation> while_allocated_;  // itself: allocated memory outlives its graphs
};

// The one at exactly this address; null where there is none.
std::shared_ptr<GraphAllocation> find_allocation(std::uintptr_t address);

// The work that frees it in a stream, where no node does.
std::unique_ptr<Work> make_free_work(const std::shared_ptr<GraphAllocation>& allocation);

// For the memory half, of memory of its kind `graph`: cuMemFreeAsync; cuMemFree, whose caller has waited; and the end
// of a device's primary context, after which nothing is allocated there.
CUresult free_in_stream(std::uintptr_t address, Stream& stream);
CUresult free_now(std::uintptr_t address);
void release_allocations_of(CUdevice device);

}  // namespace aiocuda::emulator::graph
