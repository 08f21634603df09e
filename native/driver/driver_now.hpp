// The one way to the driver's calls that ask about, order or end what was submitted before them.
//
// Always true: when such a call is made, the driver has been given all earlier work that the call is about. Orders that
// take a stream as `On` may go by the submission thread, behind that work. All others have what is on its way made
// first, except questions about streams: a stream that is well is at work then. A walk that holds calls back says so
// here. It makes them before it asks; until it has, nothing is freed or destroyed.
#pragma once
#include "submission_thread.hpp"
#include "table.hpp"

namespace aiocuda::driver {

class DriverNow {
 public:
  DriverNow(const Table& table, SubmissionThread& submission) : table_(table), submission_(submission) {}
  DriverNow(const DriverNow&) = delete;
  DriverNow& operator=(const DriverNow&) = delete;

  // Calls are held back from here on; they have been made.
  void note_held_back() { holds_back_ = true; }
  void note_given() { holds_back_ = false; }
  // Memory may be freed, and handles destroyed: no call that uses them is still to be decided.
  bool has_all() const { return !holds_back_; }

  // Has all calls made that are on their way: before a call that needs the driver's real state.
  void drain() const {
    if (!submission_.has_made_all()) [[unlikely]]
      submission_.drain();
  }
  // The same. Another thread may go on meanwhile, unless calls are held back: at the beginning of a step, where nothing
  // has been decided or looked up yet.
  void drain_slowly() const {
    if (holds_back_) return drain();
    if (!submission_.has_made_all()) [[unlikely]]
      submission_.drain_slowly();
  }
  // Is work given at all?
  bool gives() const { return submission_.is_used(); }
  bool has_made_all() const { return submission_.has_made_all(); }
  // The calls that have been given, and whether so many of them have been made.
  std::uint64_t given() const { return submission_.given(); }
  bool has_made(std::uint64_t number) const { return submission_.has_made(number); }

  // Questions.
  CUresult query(CUstream stream, CUcontext context) const {
    if (!submission_.is_used()) [[likely]]
      return table_.cuStreamQuery(stream);
    return submission_.query(stream, context);
  }
  // The event's record has been made, or was refused for good.
  CUresult query(CUevent event, CUcontext context) const {
    if (const CUresult broken = submission_.losses.broken(context)) return broken;
    return table_.cuEventQuery(event);
  }
  CUresult synchronize(CUstream stream) const { return given_all().cuStreamSynchronize(stream); }

  // Orders that may be on their way when these return.
  CUresult record(CUevent event, const On& on) const {
    return order(
        Command::Kind::record, on, [&](Command& command) { command.event = event; },
        [&] { return table_.cuEventRecord(event, on.stream); });
  }
  // `of`: the work that needs it, and the bytes that this touches. If the event's device was lost, and the stream's is
  // well, the work is lost.
  CUresult wait(On on, CUevent event, const WorkOf& of = {}, std::span<const MemoryRange> touched = {}) const {
    on.is_shown = on.is_shown || touched.size() > Command::most_ranges;
    auto fill_in = [&](Command& command) {
      command.note(of, touched);
      command.event = event;
    };
    return order(Command::Kind::wait, on, fill_in,
                 [&] { return table_.cuStreamWaitEvent(on.stream, event, CU_EVENT_WAIT_DEFAULT); });
  }
  CUresult write(const On& on, CUdeviceptr address, std::uint32_t value) const {
    return order(
        Command::Kind::write, on, [&](Command& command) { command.memory = {address, value}; },
        [&] { return table_.cuStreamWriteValue32(on.stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT); });
  }
  CUresult free(CUdeviceptr address, std::uint64_t size_bytes, const On& on) const {
    return order(
        Command::Kind::free, on, [&](Command& command) { command.memory = {address, size_bytes}; },
        [&] {
          submission_.losses.note_freed(address, size_bytes);
          return table_.cuMemFreeAsync(address, on.stream);
        });
  }
  // Orders that have been made when these return.
  CUresult record(CUevent event, CUstream stream) const { return given_all().cuEventRecord(event, stream); }
  CUresult wait(CUstream stream, CUevent event) const {
    return given_all().cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
  }
  CUresult write(CUstream stream, CUdeviceptr address, std::uint32_t value) const {
    return given_all().cuStreamWriteValue32(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }

  // Ends of what no call on its way names.
  CUresult destroy(CUstream stream) const { return table_.cuStreamDestroy(stream); }
  CUresult destroy(CUevent event) const { return table_.cuEventDestroy(event); }
  CUresult destroy(CUgraphExec executable) const { return table_.cuGraphExecDestroy(executable); }
  CUresult unload(CUlibrary library) const { return table_.cuLibraryUnload(library); }
  CUresult close(CUdeviceptr opened) const { return table_.cuIpcCloseMemHandle(opened); }

 private:
  template <class Give, class Make>
  CUresult order(Command::Kind kind, const On& on, Give&& fill_in, Make&& make) const {
    return submission_.is_used() ? give_or_make(kind, on, fill_in, make) : make();
  }
  template <class Give, class Make>
  [[gnu::noinline]] CUresult give_or_make(Command::Kind kind, const On& on, Give& fill_in, Make& make) const {
    if (const CUresult broken = submission_.losses.broken(on.context)) return broken;
    if (!submission_.takes(on)) return make();
    fill_in(submission_.next(kind, on));
    submission_.give();
    return CUDA_SUCCESS;
  }
  const Table& given_all() const {
    drain();
    return table_;
  }

  const Table& table_;
  SubmissionThread& submission_;
  bool holds_back_ = false;
};

}  // namespace aiocuda::driver
