// Staged copies on streams: see staging.hpp.
#include "staging.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <system_error>

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {
namespace {
using dataflow::Array;
using dataflow::Pageable;
using dataflow::StreamIndex;
using dataflow::Tick;
using staging::Way;

// Eight threads with chunks of 2-4 MiB fill the bus of an H200 (docs/measurements/floors.md). A stream gets three
// calls for a chunk, so a large copy has larger ones: 16 of them, until a ring has no room for more than eight.
constexpr std::size_t most_threads = 8;
constexpr std::uint64_t usual_chunks = 16, chunks_in_ring = 8;
constexpr std::uint64_t smallest_chunk = 128 << 10, largest_chunk = 8 << 20;
// To the device, who submits carries so much itself: that takes some 25 us, and to wake threads 50 to 200.
constexpr std::uint64_t most_own_bytes = 256 << 10;
// Of a device, for memory, and as many for files: so many streams can have copies under way that do not wait for one
// another.
constexpr std::size_t most_rings = 4;
// Of a device, that have not passed: three calls each, and 1,021 have room in a queue of NVIDIA's driver, with all
// else. Each bound has room for the largest copy that there is.
constexpr std::uint32_t most_chunks_of_memory = 128, most_chunks_of_files = 40;
// How long the process' end waits for threads that are in the middle of a piece.
constexpr std::chrono::seconds last_pieces{1};
// NVIDIA's driver takes 56 host functions that are pending, and lets the next caller wait: 32 copies by such are many.
constexpr std::uint32_t chunks_of_function_copy = (most_chunks_of_memory + most_chunks_of_files) / 32;

// The reactor asks after the stream while this is there: the threads must not, for a call of the driver's may wait for
// them.
class Watch {
 public:
  Watch(completion::Pending& pending, StreamIndex stream)
      : pending_(pending), number_(pending.add({completion_, stream, nullptr, {}})) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { end(); }
  bool is_lost() const { return completion_->has_ended(); }
  void end() const { pending_.withdraw(number_); }

 private:
  completion::Pending& pending_;
  const std::shared_ptr<completion::Completion> completion_ = std::make_shared<completion::Completion>(1);
  const std::uint64_t number_;
};

void CUDA_CB begin_directly(void* file) { static_cast<staging::File*>(file)->begin_directly(); }

}  // namespace

// Always true: its host function touches the memory only where nobody has called it off before.
struct Staging::FunctionCopy {
  enum class State : std::uint8_t { waiting, running, ended };

  FunctionCopy(const Pageable& pageable, Way to, Tick when, completion::Pending& pending)
      : host(pageable.host), way(to), tick(when), owner(pageable.owner), watch(pending, when.stream) {}

  static void CUDA_CB run(void* pointer) {
    auto& made = *static_cast<FunctionCopy*>(pointer);
    State expected = State::waiting;
    if (!made.state.compare_exchange_strong(expected, State::running)) return;
    if (made.way == Way::drain) {
      made.host.unpack(0, made.host.size_bytes(), made.packed);
    } else {
      made.host.pack(0, made.host.size_bytes(), made.packed);
    }
    made.watch.end();  // the last use of it
    made.state.store(State::ended, std::memory_order_release);
  }
  // Nobody will touch the host's memory any more.
  bool is_called_off() {
    State expected = State::waiting;
    return state.compare_exchange_strong(expected, State::ended) || expected == State::ended;
  }

  const staging::HostEnd host;
  const Way way;
  const Tick tick;
  nb::object owner;
  const Watch watch;
  dataflow::BufferRef memory{};  // page-locked, where the array is on a device
  std::byte* packed = nullptr;
  std::atomic<State> state{State::waiting};
};

std::uint64_t Staging::chunk_bytes(std::uint64_t size_bytes) {
  constexpr std::uint64_t page = 4096;
  return std::clamp((size_bytes / usual_chunks + page - 1) / page * page, smallest_chunk, largest_chunk);
}

Staging::DeviceRings& Staging::rings_of(std::int32_t device, bool is_of_files) {
  const std::size_t slot = 2 * static_cast<std::size_t>(device) + (is_of_files ? 1 : 0);
  if (rings_.size() <= slot) rings_.resize(slot + 1);
  return rings_[slot];
}

std::uint64_t Staging::ring_bytes() const {
  std::uint64_t sum = 0;
  for (const DeviceRings& each : rings_)
    for (const auto& ring : each.rings) sum += ring->memory->size_bytes;
  return sum;
}

Staging::DeviceRing& Staging::make_ring(DeviceRings& here, std::uint64_t size_bytes) {
  if (!threads_)
    threads_ = std::make_unique<staging::CopyThreads>(
        std::clamp<std::size_t>(std::thread::hardware_concurrency() / 2, 1, most_threads));
  constexpr std::uint64_t words_bytes = 3 * staging::Words::stride * sizeof(std::uint32_t);
  auto ring = std::make_unique<DeviceRing>(
      DeviceRing{nullptr, memory_.allocate_host(size_bytes), memory_.allocate_host(words_bytes)});
  auto* words = reinterpret_cast<std::uint32_t*>(ring->words->address);
  std::memset(words, 0, words_bytes);
  ring->ring = threads_->add_ring({reinterpret_cast<std::byte*>(ring->memory->address), size_bytes}, {words});
  here.rings.push_back(std::move(ring));
  return *here.rings.back();
}

// The one that the stream has, else one that nobody uses.
Staging::DeviceRing* Staging::find_ring(DeviceRings& here, StreamIndex stream) {
  // A lost device's memory stays where it is: the device may have been writing to it.
  std::erase_if(here.rings, [this](auto& ring) {
    if (!threads_->is_lost(*ring->ring)) return false;
    static std::vector<std::unique_ptr<DeviceRing>>& lost = *new std::vector<std::unique_ptr<DeviceRing>>;
    lost.push_back(std::move(ring));
    return true;
  });
  for (const auto& ring : here.rings)
    if (ring->last == stream) return ring.get();
  for (const auto& ring : here.rings)
    if (threads_->is_idle(*ring->ring)) return ring.get();
  return nullptr;
}

std::uint64_t Staging::missing_ring_bytes(StreamIndex stream, const Pageable& memory) {
  const std::int32_t device = streams_.at(stream).device;
  if (!devices_.at(device).writes_flags) return 0;
  DeviceRings& here = rings_of(device, memory.host.file());
  const std::uint64_t wanted = std::bit_ceil(chunk_bytes(memory.host.size_bytes()) * chunks_in_ring);
  const DeviceRing* const found = find_ring(here, stream);
  if (!found) return here.rings.size() < most_rings ? wanted : 0;
  return found->ring->size_bytes() < wanted && threads_->is_idle(*found->ring) ? wanted : 0;
}

// If there is none for it, a new one, else the one with least to do.
Staging::DeviceRing& Staging::ring_for(DeviceRings& here, StreamIndex stream, std::uint64_t chunk) {
  DeviceRing* found = find_ring(here, stream);
  const std::uint64_t wanted = std::bit_ceil(chunk * chunks_in_ring);
  if (!found && here.rings.size() < most_rings) {
    found = &make_ring(here, wanted);
    found->last = stream;
  }
  if (!found)
    found = std::min_element(here.rings.begin(), here.rings.end(), [this](const auto& a, const auto& b) {
              return threads_->chunk_count(*a->ring) < threads_->chunk_count(*b->ring);
            })->get();
  if (found->ring->size_bytes() < wanted && threads_->is_idle(*found->ring)) {
    dataflow::BufferRef larger = memory_.allocate_host(wanted);
    threads_->replace_memory(*found->ring, {reinterpret_cast<std::byte*>(larger->address), wanted});
    found->memory = std::move(larger);
  }
  return *found;
}

void Staging::wait(StreamIndex stream, const std::uint32_t* word, std::uint32_t number) {
  check(table_.cuStreamWaitValue32(streams_.at(stream).handle, reinterpret_cast<CUdeviceptr>(word), number,
                                   CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue32");
}
void Staging::write(StreamIndex stream, const std::uint32_t* word, std::uint32_t number) {
  check(now_.write(streams_.at(stream).handle, reinterpret_cast<CUdeviceptr>(word), number), "cuStreamWriteValue32");
}

void Staging::copy(StreamIndex stream, CUdeviceptr to, CUdeviceptr from, std::uint64_t size_bytes) {
  if (size_bytes == 0) return;
  check(table_.cuMemcpyAsync(to, from, size_bytes, streams_.at(stream).handle), "cuMemcpyAsync");
}

// The work that another stream got before comes first.
void Staging::take_over(DeviceRing& ring, StreamIndex stream) {
  const staging::Words& words = ring.ring->words();
  const std::uint32_t last = ring.ring->last_number();
  if (ring.last != stream && !staging::has_reached(staging::read_word(words.passed()), last))
    wait(stream, words.passed(), last);
  ring.last = stream;
}

// `enqueue(part)` puts a chunk's calls on the stream, where its part of the ring is granted.
template <class Enqueue>
bool Staging::carry(Tick tick, DeviceRing& ring, const Pageable& memory, Way way, std::uint64_t chunk,
                    std::byte* in_place, Enqueue&& enqueue) {
  take_over(ring, tick.stream);
  const staging::Words& words = ring.ring->words();
  const staging::CopyThreads::Handed handed = threads_->hand_over(*ring.ring, memory.host, way, chunk, in_place);
  bool is_called = false;
  auto call_threads = [&] {
    if (std::exchange(is_called, true)) return;
    const auto watch = std::make_shared<Watch>(pending_, tick.stream);
    kept_.push_back({handed.transfer, memory.owner});
    try {
      threads_->call(*handed.transfer, [watch] { return watch->is_lost(); });
    } catch (const std::system_error&) {  // no thread more: those that there are do
      const bool is_nobody = threads_->thread_count() == 0;
      threads_->withdraw(*ring.ring,
                         is_nobody ? handed.parts.front().number : handed.parts.back().number + 1);  // which wakes them
      if (is_nobody) throw;
    }
  };
  const bool is_file = memory.host.file();
  std::uint64_t own_bytes = way == Way::fill && !is_file ? most_own_bytes : 0;
  if (is_file || memory.host.size_bytes() > own_bytes) call_threads();
  for (const staging::CopyThreads::Part& part : handed.parts) {
    if (!is_file && part.size_bytes <= own_bytes && threads_->carry_now(*ring.ring, part.number)) {
      own_bytes -= part.size_bytes;
    } else {
      call_threads();
    }
    try {
      if (!in_place && !staging::has_reached(staging::read_word(words.granted()), part.number))
        wait(tick.stream, words.granted(), part.number);
      enqueue(part);
      write(tick.stream, words.passed(), part.number);
    } catch (const Refusal& refusal) {
      threads_->withdraw(*ring.ring, part.number);
      const StreamState& stream = streams_.at(tick.stream);
      const CUresult state = streams_.query(stream);
      if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) threads_->abandon(*ring.ring);
      if (refusal.result != CUDA_ERROR_NOT_SUPPORTED) throw;
      devices_.at(stream.device).writes_flags = false;
      if (part.number != handed.parts.front().number) throw;  // some of it is on its way
      return false;
    }
  }
  if (way != Way::fill) wait(tick.stream, words.finished(), handed.parts.back().number);
  rings_of(streams_.at(tick.stream).device, is_file)
      .in_queue.push_back({tick, static_cast<std::uint32_t>(handed.parts.size())});
  return true;
}

void Staging::to_array(Tick tick, const Array& array, const Pageable& memory) {
  put(tick, array, memory, array.is_host() ? Way::store : Way::fill);
}
void Staging::from_array(Tick tick, const Array& array, const Pageable& memory) {
  put(tick, array, memory, Way::drain);
}
void Staging::put(Tick tick, const Array& array, const Pageable& memory, Way way) {
  now_.drain();
  staged_bytes_ += array.size_bytes();
  if (memory.is_nothing()) return;
  if (memory.host.is_direct() && can_be_direct(array)) return move_directly(tick, array, memory, way);
  if (!has_taken(tick, array, memory, way)) send(tick, array, memory, way);
}

bool Staging::has_taken(Tick tick, const Array& array, const Pageable& memory, Way way) {
  if (!devices_.at(streams_.at(tick.stream).device).writes_flags) return false;
  // What the stream itself still writes is read by a host function, behind it in the streams: threads would read ahead
  // of it.
  if (way != Way::drain && is_written_by_stream(memory)) return false;
  const std::uint64_t chunk = chunk_bytes(array.size_bytes());
  DeviceRing& ring = ring_for(rings_of(streams_.at(tick.stream).device, memory.host.file()), tick.stream, chunk);
  if (array.is_host())
    return carry(tick, ring, memory, way, chunk, reinterpret_cast<std::byte*>(array.address()), [](const auto&) {});
  return carry(tick, ring, memory, way, std::min(chunk, ring.ring->size_bytes() / 2), nullptr,
               [&](const staging::CopyThreads::Part& part) {
                 const CUdeviceptr there = array.address() + part.begin,
                                   packed = reinterpret_cast<CUdeviceptr>(part.packed);
                 if (way == Way::drain)
                   copy(tick.stream, packed, there, part.size_bytes);
                 else
                   copy(tick.stream, there, packed, part.size_bytes);
               });
}

void Staging::send(Tick tick, const Array& array, const Pageable& memory, Way way) {
  const StreamState& stream = streams_.at(tick.stream);
  const std::uint64_t size = array.size_bytes();
  const auto made = std::make_shared<FunctionCopy>(memory, way, tick, pending_);
  if (!array.is_host()) made->memory = memory_.allocate_host(size);
  const CUdeviceptr packed = array.is_host() ? array.address() : made->memory->address;
  made->packed = reinterpret_cast<std::byte*>(packed);
  function_copies_.push_back(made);
  if (!array.is_host() && way == Way::drain) copy(tick.stream, packed, array.address(), size);
  check(table_.cuLaunchHostFunc(stream.handle, FunctionCopy::run, made.get()), "cuLaunchHostFunc");
  rings_of(stream.device, memory.host.file()).in_queue.push_back({tick, chunks_of_function_copy});
  if (!array.is_host() && way == Way::fill) copy(tick.stream, array.address(), packed, size);
}

void Staging::move_directly(Tick tick, const Array& array, const Pageable& memory, Way way) {
  const StreamState& stream = streams_.at(tick.stream);
  direct_copies_.push_back({tick, memory.host, way, memory.owner});
  rings_of(stream.device, true).in_queue.push_back({tick, chunks_of_function_copy});
  if (staging::File* const file = memory.host.begins_directly())
    check(table_.cuLaunchHostFunc(stream.handle, begin_directly, file), "cuLaunchHostFunc");
  memory.host.move_directly(array.address(), stream.handle);
}

bool Staging::is_written_by_stream(const Pageable& memory) const {
  const bool is_written_directly = std::any_of(direct_copies_.begin(), direct_copies_.end(), [&](const auto& each) {
    return each.way == Way::drain && !timeline_.is_known_complete(each.tick) && each.host.meets(memory.host);
  });
  return is_written_directly || std::any_of(function_copies_.begin(), function_copies_.end(), [&](const auto& each) {
           return each->way == Way::drain &&
                  each->state.load(std::memory_order_acquire) != FunctionCopy::State::ended &&
                  each->host.meets(memory.host);
         });
}

void Staging::shut_down() {
  if (threads_ && !threads_->stop_within(last_pieces)) {
    // A thread in a slow file comes back from there at any time, if the process has not ended.
    struct Left {
      std::unique_ptr<staging::CopyThreads> threads;
      std::deque<DeviceRings> rings;
      std::deque<Kept> kept;
    };
    static std::vector<Left>& left = *new std::vector<Left>;
    left.push_back({std::move(threads_), std::exchange(rings_, {}), std::exchange(kept_, {})});
  }
  for (const auto& made : function_copies_) made->is_called_off();
  // Of a lost device: the library may still look at them, and come back from a disk at any time.
  static std::vector<std::deque<DirectCopy>>& under_way = *new std::vector<std::deque<DirectCopy>>;
  under_way.push_back(std::exchange(direct_copies_, {}));
}

std::optional<Tick> Staging::full(std::int32_t device, const staging::HostEnd& host) {
  const bool is_file = host.file();
  DeviceRings& here = rings_of(device, is_file);
  while (!here.in_queue.empty() && timeline_.is_known_complete(here.in_queue.front().tick)) here.in_queue.pop_front();
  if (here.in_queue.empty()) return std::nullopt;
  const std::uint64_t chunk = chunk_bytes(host.size_bytes());
  std::uint64_t chunks = std::max<std::uint64_t>((host.size_bytes() + chunk - 1) / chunk, 1);
  for (const InQueue& each : here.in_queue) chunks += each.chunks;
  if (chunks <= (is_file ? most_chunks_of_files : most_chunks_of_memory)) return std::nullopt;
  return here.in_queue.front().tick;
}

void Staging::drop_those_that_ended() {
  std::deque<Kept> left, all = std::exchange(kept_, {});
  for (Kept& each : all)
    if (!each.transfer->has_ended()) left.push_back(std::move(each));
  kept_.insert(kept_.end(), std::make_move_iterator(left.begin()), std::make_move_iterator(left.end()));
  std::vector<nb::object> owners;
  for (std::shared_ptr<FunctionCopy>& each : std::exchange(function_copies_, {})) {
    const bool has_passed = timeline_.is_known_complete(each->tick);
    if (!has_passed && !(each->watch.is_lost() && each->is_called_off())) {
      function_copies_.push_back(std::move(each));
      continue;
    }
    owners.push_back(std::move(each->owner));
    // A lost device may write to the memory, and the driver still call the function.
    static std::vector<std::shared_ptr<FunctionCopy>>& lost = *new std::vector<std::shared_ptr<FunctionCopy>>;
    if (!has_passed) lost.push_back(std::move(each));
  }
  std::deque<DirectCopy> passed, direct = std::exchange(direct_copies_, {});
  for (DirectCopy& each : direct)
    (timeline_.is_known_complete(each.tick) ? passed : direct_copies_).push_back(std::move(each));
  // Objects are dropped here, when nothing is half done, because dropping them may call this again.
}

}  // namespace aiocuda::driver
