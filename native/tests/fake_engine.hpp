// The engine's parts over a driver for tests, connected as the engine connects them, without Python.
#pragma once
#include <functional>
#include <stdexcept>

#include "driver/graph_room.hpp"
#include "driver/images.hpp"
#include "driver/lending.hpp"
#include "driver/memory.hpp"
#include "driver/relays.hpp"
#include "driver/room.hpp"
#include "driver/streams.hpp"
#include "driver/waits.hpp"
#include "fake_driver.hpp"

namespace aiocuda::driver::tests {

struct Over : std::runtime_error {
  Over() : std::runtime_error("the engine is over") {}
};

class FakeEngine : public Surroundings {
 public:
  static constexpr std::uint64_t memory_bytes = std::uint64_t{1} << 40;  // of each device

  explicit FakeEngine(std::int32_t device_count = 1) {
    for (std::int32_t ordinal = 0; ordinal < device_count; ++ordinal) open(ordinal);
    slow_calls = 0;
  }
  virtual ~FakeEngine() {
    lending.take_back();
    waits.shut_down();
    memory.shut_down();
  }

  bool is_ending() const override { return is_ended; }
  [[noreturn]] void raise_over() const override { throw Over(); }
  void open(std::int32_t ordinal) override {
    const auto context = reinterpret_cast<CUcontext>(0x100 + ordinal);
    const StreamIndex first = streams.create_first(ordinal, context);
    devices.add(ordinal, context, reinterpret_cast<CUmemoryPool>(0x200 + ordinal), memory_bytes, first, -5);
  }
  void collect() override {
    if (is_over() || !now.has_all()) return;
    ++collections;
    lending.take_back();
    memory.free_due();
    streams.destroy_closed();
    memory.close_due();
    images.unload_idle();
    memory.free_excess();
  }
  void note_return() noexcept override {
    if (!is_submitting) collect();
  }
  void note_freed(std::int32_t device) override { room.note_freed(device); }
  void mark_last(dataflow::AtEnd& last, StreamIndex stream) override {
    last.leave();
    marked.push_back(stream);
  }
  CUresult call_slowly(const std::function<CUresult()>& call) override {
    ++slow_calls;
    if (during_slow_call) during_slow_call();
    return call();
  }
  void fork() { is_forked_ = true; }

  CUstream handle(StreamIndex stream) { return streams.at(stream).handle; }
  // Work on a stream, as a walk would count it.
  Tick submit(StreamIndex stream) {
    streams.enter(stream);
    driver.submit(handle(stream));
    return timeline.advance(stream);
  }
  dataflow::BufferRef allocate(std::uint64_t size_bytes, std::int32_t device = 0) {
    return memory.allocate_device(device, size_bytes, devices.at(device).default_stream, [] {});
  }

  FakeDriver driver;
  const Table table = driver.table();
  bool is_ended = false, is_submitting = false;
  int collections = 0, slow_calls = 0;
  std::function<void()> during_slow_call{};  // what another thread does then
  std::vector<StreamIndex> marked;           // whose last work was marked, because more came
  dataflow::Timeline timeline;
  completion::Pending pending;
  completion::Lines lines{pending};
  SubmissionThread submission{table, *this};
  DriverNow now{table, submission};
  Devices devices{table, now, *this};
  Streams streams{devices, timeline, *this};
  Relays relays{devices, streams, timeline};
  Lending lending{devices, streams, timeline, relays};
  Memory memory{devices, streams, timeline, *this};
  Images images{devices, streams, timeline, *this};
  Waits waits{devices, streams, timeline, pending, *this, [this](StreamIndex stream) { lines.look(stream); }};
  Room room{devices, streams, timeline, waits, memory, lines};
  GraphRoom graph_room{devices, streams, *this};
};

// The driver's answer to a call that was refused; success if none was.
inline CUresult code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Refusal& refusal) {
    return refusal.result;
  }
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::driver::tests
