// Copies between pageable memory, or files, and arrays, as streams get them: rings of page-locked memory, and what is
// put on a stream for each chunk. The protocol, and why nothing waits for ever, stands in staging/copy_threads.hpp.
//
// Always true: a chunk gets its number right before the driver gets its calls; the memory's owner is kept until no
// thread touches it. Guarded by the right to submit.
//
// A file that is direct needs no ring: a library moves the bytes between the file and the device, on the stream.
//
// On a device whose streams cannot wait for memory and write it, a host function of the stream carries a copy as a
// whole, through page-locked memory of its own: slower, and for the rest the same.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "../completion/completion.hpp"
#include "../dataflow/pageable.hpp"
#include "../staging/copy_threads.hpp"
#include "memory.hpp"
#include "streams.hpp"
#include "table.hpp"

namespace aiocuda::driver {
namespace nb = nanobind;

class Staging {
 public:
  Staging(Devices& devices, Streams& streams, Memory& memory, dataflow::Timeline& timeline,
          completion::Pending& pending)
      : devices_(devices),
        streams_(streams),
        memory_(memory),
        timeline_(timeline),
        pending_(pending),
        table_(devices.table()),
        now_(devices.now()) {}

  // The submitting thread copies memory of up to this size to page-locked memory of its own, from which any array can
  // be filled.
  static constexpr std::uint64_t short_bytes = 64 << 10;

  // Does the array lie where a disk may write? A part of managed memory may be the host's.
  static bool can_be_direct(const dataflow::Array& array) { return !array.is_host() && !array.is_managed(); }

  // Puts the copy of a C-contiguous array, from or to pageable memory or a file of its size, on a stream; `tick`: the
  // submission that it is, or is part of. Throws Refusal: what was put there before goes on.
  void to_array(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory);
  void from_array(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory);
  // The driver's queues have no room for another such copy; what must pass first.
  std::optional<dataflow::Tick> full(std::int32_t device, const staging::HostEnd& host);
  // How much page-locked memory a copy on a stream will first ask for, for its ring; 0: none.
  std::uint64_t missing_ring_bytes(dataflow::StreamIndex stream, const dataflow::Pageable& memory);
  // Is some of this memory still to be written?
  bool is_being_written(const dataflow::Pageable& memory) const {
    return (threads_ && threads_->is_being_written(memory.host)) || is_written_by_stream(memory);
  }

  // Lets go of the owners of what no thread touches any more.
  void drop_ended() {
    if (!kept_.empty() || !function_copies_.empty() || !direct_copies_.empty()) drop_those_that_ended();
  }
  // Stands for all pageable memory in the hazards.
  dataflow::Buffer& pageable() { return *pageable_; }
  std::uint64_t ring_bytes() const;
  // That copies of pageable memory and files have moved, or are to move, since the process began.
  std::uint64_t staged_bytes() const { return staged_bytes_; }
  std::size_t thread_count() const { return threads_ ? threads_->thread_count() : 0; }
  void shut_down();

 private:
  void drop_those_that_ended();

  struct DeviceRing {
    staging::Ring* ring;
    dataflow::BufferRef memory, words;
    dataflow::StreamIndex last = 0;  // which stream has it
  };
  // The chunks that a stream got, as long as they may be in the driver's queue.
  struct InQueue {
    dataflow::Tick tick;
    std::uint32_t chunks;
  };
  struct DeviceRings {
    std::vector<std::unique_ptr<DeviceRing>> rings;
    std::deque<InQueue> in_queue;
  };
  struct Kept {
    staging::TransferRef transfer;
    nb::object owner;
  };

  // A copy that a host function makes, or half of it.
  struct FunctionCopy;

  // A copy by the library of direct files, which looks at the part until the stream has passed.
  struct DirectCopy {
    dataflow::Tick tick;
    staging::HostEnd host;
    staging::Way way;
    nb::object owner;
  };

  static std::uint64_t chunk_bytes(std::uint64_t size_bytes);
  DeviceRings& rings_of(std::int32_t device, bool is_of_files);
  DeviceRing* find_ring(DeviceRings& here, dataflow::StreamIndex stream);
  DeviceRing& ring_for(DeviceRings& here, dataflow::StreamIndex stream, std::uint64_t chunk);
  DeviceRing& make_ring(DeviceRings& here, std::uint64_t size_bytes);
  void take_over(DeviceRing& ring, dataflow::StreamIndex stream);
  void put(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory, staging::Way way);
  // By rings. False: the device cannot, and has been given nothing.
  bool has_taken(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory, staging::Way way);
  template <class Enqueue>
  bool carry(dataflow::Tick tick, DeviceRing& ring, const dataflow::Pageable& memory, staging::Way way,
             std::uint64_t chunk, std::byte* in_place, Enqueue&& enqueue);
  void send(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory, staging::Way way);
  void move_directly(dataflow::Tick tick, const dataflow::Array& array, const dataflow::Pageable& memory,
                     staging::Way way);
  // By no thread of ours: these would read ahead of the stream.
  bool is_written_by_stream(const dataflow::Pageable& memory) const;
  void wait(dataflow::StreamIndex stream, const std::uint32_t* word, std::uint32_t number);
  void write(dataflow::StreamIndex stream, const std::uint32_t* word, std::uint32_t number);
  void copy(dataflow::StreamIndex stream, CUdeviceptr to, CUdeviceptr from, std::uint64_t size_bytes);

  Devices& devices_;
  Streams& streams_;
  Memory& memory_;
  dataflow::Timeline& timeline_;
  completion::Pending& pending_;
  const Table& table_;
  const DriverNow& now_;
  std::uint64_t staged_bytes_ = 0;
  std::unique_ptr<staging::CopyThreads> threads_;
  std::deque<DeviceRings> rings_;  // by device, of memory and of files: a slow file must not hold up memory
  std::deque<Kept> kept_;
  std::deque<std::shared_ptr<FunctionCopy>> function_copies_;  // that are on their way
  std::deque<DirectCopy> direct_copies_;                       // likewise
  // Held for ever, so that its hazards never go.
  dataflow::BufferRef pageable_{std::make_unique<dataflow::Buffer>(dataflow::address_space_bytes)};
};

}  // namespace aiocuda::driver
