// Streams: their handles, the marks that others wait for, and how far each is.
//
// Always true: a slot of the timeline has one stream at a time; its next one comes when the last has been destroyed,
// with all its work passed. A refused call leaves no handle behind, and nothing false in the timeline. Somebody else's
// stream is used while a submission puts work there, and never later: its owner may destroy it, and NVIDIA's driver
// ends the process over a handle that is gone. Guarded by the GIL, except `ask`, which the reactor's thread calls.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../dataflow/buffer.hpp"
#include "../dataflow/tick.hpp"
#include "../few.hpp"
#include "devices.hpp"

namespace aiocuda::driver {

struct StreamState {
  CUstream handle = nullptr;
  std::int32_t device = 0;
  CUcontext context = nullptr;
  CUevent mark =
      nullptr;  // re-recorded at will: a wait binds the record that precedes it; null: the stream was destroyed
  std::array<CUevent, dataflow::most_marks> marks{};  // the timeline's, made when they are first used
  std::uint32_t generation = 0;                       // how many streams had this slot before
  std::uint64_t before = 0;                           // what they submitted
  bool owned = true;
  bool closing = false;               // no longer handed out; destroyed when its work has passed
  std::shared_ptr<void> keepalive{};  // of a stream that is somebody else's
  std::uint32_t users = 0;            // of such a one: how many have adopted it and not left it
  unsigned long long number = 0;      // of such a one: no other stream has had it
  CUstream beside = nullptr;          // of such a one: a stream of ours, behind all that we put there
  bool is_at_rest = false;            // `beside` stands for it: nothing has come to it since
  bool is_lent = false;               // others have its handle, and may put work there
  std::shared_ptr<void> held{};       // made by `hold`: others than this one have it while it is needed
  std::shared_ptr<void> same{};       // of a stream that was adopted, and is one of ours: holds that
  bool is_kept = false;               // a framework has memory that goes back to it: it is never destroyed
  dataflow::AtEnd* end = nullptr;     // the work at its end, for which somebody may wait
  std::uint64_t entries = 0;          // how often something came to it

  On on() const { return {handle, context, !owned || is_lent}; }
  // What comes after all that was put there until now.
  On behind() const { return is_at_rest ? On{beside, context, false} : on(); }
};

// A part that has the device do something for a stream beside its work.
class StreamFollower {
 public:
  // Is nothing of it on its way any more? Throws Refusal on a broken context.
  virtual bool has_left(StreamIndex stream) = 0;
  // The stream is destroyed now.
  virtual void leave(StreamIndex stream) = 0;

 protected:
  ~StreamFollower() = default;
};

class Streams {
 public:
  Streams(Devices& devices, dataflow::Timeline& timeline, Surroundings& around)
      : devices_(devices), timeline_(timeline), around_(around), table_(devices.table()), now_(devices.now()) {}
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    for (StreamState& state : streams_)
      if (state.end) state.end->leave();
  }
  void set_follower(StreamFollower& follower) { follower_ = &follower; }

  StreamIndex create(std::int32_t device, int priority);
  // The first one of a device, which is not open yet. Other threads go on while the driver makes it.
  StreamIndex create_first(std::int32_t device, CUcontext context);
  // Somebody else's stream, and what keeps it, if something does; the same one as before where it was adopted before,
  // and is still there. Throws Refusal.
  StreamIndex adopt(CUstream handle, std::int32_t device, std::shared_ptr<void> keepalive);
  // One of its users needs it no more. Streams that nobody needs are closed, but for the last few: a program that names
  // one again and again would have it made anew each time.
  void leave(StreamIndex stream);
  // The stream is destroyed when its work has passed.
  void close(StreamIndex stream);
  void destroy_closed();
  // A stream of the device that no policy uses, for what must hold up no work.
  StreamIndex aside(std::int32_t device);

  StreamState& at(StreamIndex index) { return *by_index_.at(index); }
  const StreamState& at(StreamIndex index) const { return *by_index_.at(index); }
  std::size_t size() const { return streams_.size(); }
  std::uint64_t count_used(std::int32_t device) const;  // of those that are there
  dataflow::StreamId id_of(StreamIndex index) const {
    return static_cast<dataflow::StreamId>(at(index).generation) << 32 | index;
  }
  bool is_open(dataflow::StreamId stream) const {
    const StreamIndex slot = dataflow::slot_of(stream);
    return slot < by_index_.size() && id_of(slot) == stream && !at(slot).closing;
  }
  std::string title_of(StreamIndex index) const {
    return "stream " + std::to_string(index) + " of device " + std::to_string(at(index).device);
  }

  // Somebody may wait for work that was submitted just now. True: nothing can come behind it unnoticed, so the stream's
  // end tells of it. Else it needs a mark.
  bool stand_at_end(dataflow::AtEnd& work, Tick tick);
  // More comes to a stream: whoever waits for the work at its end must not wait for that, too. Throws Refusal.
  void enter(StreamIndex stream) {
    StreamState& state = *by_index_[stream];
    if (state.end) [[unlikely]]
      around_.mark_last(*state.end, stream);
    ++state.entries;
    if (state.is_at_rest) [[unlikely]]
      wake(stream);
  }
  // At the end of a submission: from here on nobody needs the streams of others that work was put on. Throws nothing:
  // what the driver refuses is tried again.
  void rest() noexcept {
    if (!woken_.empty()) [[unlikely]]
      rest_woken();
  }
  // The owner of a stream that is somebody else's may have put work there. It must be there still.
  void look_again(StreamIndex stream) {
    if (!at(stream).is_at_rest) return;
    wake(stream);
    rest();
  }
  // Others get its handle.
  CUstream lend(StreamIndex stream);
  // As long as this lives, the stream is not destroyed: one of ours whose handle others got, or one that was adopted
  // with what keeps it. Null: it is none of them.
  std::shared_ptr<void> hold(CUstream handle, std::int32_t device, unsigned long long number);
  // Every device has those for good.
  static bool is_default(CUstream handle) {
    return handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  }

  // Orders later work of `stream` after what `other` holds so far, whoever submitted it.
  CUresult wait(StreamIndex stream, StreamIndex other);
  // The timeline's marks: made behind all that a stream holds now; waited for by another. Throw Refusal.
  void put_mark(StreamIndex stream, std::uint32_t slot);
  // `of`: the work that needs it, and the bytes that this touches.
  void wait_for_mark(StreamIndex stream, StreamIndex other, std::uint32_t slot, const WorkOf& of = {},
                     std::span<const MemoryRange> touched = {});
  // Counts what was put on a stream as work of its own, which later work elsewhere may wait for. Throws Refusal.
  Tick pass(StreamIndex stream);
  // The same for a relay, behind all that a stream of somebody else's holds: the mark is an event there. Throws
  // Refusal.
  Tick pass_behind(StreamIndex stream, CUstream theirs);
  // Order later work of a stream after a tick, or after all that touches a buffer's bytes. Throw Refusal.
  void after(StreamIndex stream, Tick tick);
  void order(StreamIndex stream, const dataflow::Buffer& buffer, dataflow::Span span);
  // Order a stream that may be somebody else's after work on bytes, for who reads them, or writes them. In the context
  // of its device. Throws Refusal, also where somebody captures it.
  void order_others(CUstream theirs, std::int32_t device, const dataflow::Buffer& buffer,
                    std::span<const dataflow::Span> pieces, bool writes);
  // The same after ticks.
  void order_others(CUstream theirs, std::int32_t device, std::span<const Tick> ticks);

  // Waits between these streams, or marks of theirs, were counted on and could not be made. Until `restore_order`
  // nothing may be submitted or freed.
  void lose_order(const std::set<StreamIndex>& streams) { unordered_.insert(streams.begin(), streams.end()); }
  bool has_order() const { return unordered_.empty(); }
  // Orders all later work of each of them after all that the others hold. Throws Refusal: it is to be tried again.
  void restore_order();

  // Is somebody capturing it? A question about it would end the capture. So would one about the legacy default stream
  // while somebody captures a stream that it waits for.
  bool is_captured(CUstream handle) const;
  // A framework works on a stream of ours from now on, behind all that a stream of its own holds. Throws Refusal, also
  // where somebody captures theirs.
  void follow(StreamIndex index, CUstream theirs);
  // Has a stream done all its work, is its context well? While somebody captures it nothing is known: not ready.
  CUresult query(const StreamState& stream) const {
    return stream.is_at_rest ? now_.query(stream.beside, stream.context) : query(stream.handle, stream.context);
  }
  // Has a stream that may be somebody else's done all its work? Not while somebody captures it. In the context of its
  // device. Throws Refusal on a broken context.
  bool has_passed_all(CUstream theirs, std::int32_t device) const;
  // Throws Refusal where somebody captures a stream that is not ours: what is put there now does not run.
  void require_not_captured(StreamIndex stream) const {
    const StreamState& state = at(stream);
    if (!state.owned) [[unlikely]]
      require_not_captured(state.handle, state.device);
  }
  void require_not_captured(CUstream theirs, std::int32_t device) const;
  // For the reactor's thread: 0, or the error that broke the stream's context.
  std::int32_t ask(StreamIndex stream) const;

  // Takes in that a stream is so far. Throws Refusal where what it was ordered after, on another device, was lost: a
  // stream does not wait for a context that is broken, and goes on with what is not there.
  void learn(const dataflow::Snapshot& complete);
  // Has it passed? Asks the driver where nothing is known. Throws Refusal on a broken context.
  bool is_complete(Tick tick);
  Few<Tick> incomplete(std::span<const Tick> ticks);
  // Has it passed, or been lost with its context, which runs nothing any more?
  bool has_ended(Tick tick);
  // The first tick of what touches a buffer that has not ended; count 0: all have.
  Tick first_not_ended(const dataflow::Buffer& buffer);
  bool has_ended(const dataflow::Buffer& buffer) { return first_not_ended(buffer).count == 0; }
  // Has the device passed all that was submitted here? Throws Refusal on a broken context.
  bool is_idle(std::int32_t device);
  bool is_idle();  // every device is; a broken context is
  // The streams of other devices that must be well for this to have passed.
  std::vector<StreamIndex> foreign_producers(const dataflow::Snapshot& complete) const;
  // Has the driver take note of what has passed: it does when it is waited for, not when it is asked. Waits for
  // nothing.
  void settle(std::int32_t device);

  // A point of a stream that can be asked about and waited for later, whatever is submitted meanwhile.
  // Its event is used again afterwards.
  class Mark {
   public:
    Mark(dataflow::Snapshot complete, std::uint64_t entries, CUevent event, std::vector<CUevent>& spare)
        : complete_(std::move(complete)), entries_(entries), event_(event), spare_(&spare) {}
    Mark(Mark&& other) noexcept
        : complete_(std::move(other.complete_)),
          entries_(other.entries_),
          given_(other.given_),
          event_(std::exchange(other.event_, nullptr)),
          spare_(other.spare_) {}
    Mark& operator=(Mark&&) = delete;
    ~Mark() {
      // An event may be recorded again while somebody waits for an earlier record of it.
      if (event_) spare_->push_back(event_);
    }
    StreamIndex stream() const { return complete_.last.stream; }
    bool covers(Tick tick) const { return complete_.last.stream == tick.stream && complete_.last.count >= tick.count; }
    const dataflow::Snapshot& complete() const { return complete_; }  // what has passed once the event has
    CUevent event() const { return event_; }
    // Its record is on its way behind so many calls.
    void note_given(std::uint64_t given) { given_ = given; }
    std::uint64_t given() const { return given_; }
    // Has something come to its stream since?
    bool is_overtaken(const StreamState& stream, std::uint64_t submitted) const {
      return complete_.last.count != submitted || entries_ != stream.entries;
    }

   private:
    dataflow::Snapshot complete_;
    std::uint64_t entries_, given_ = 0;
    CUevent event_;
    std::vector<CUevent>* spare_;
  };
  Mark mark(StreamIndex stream);

  // In the stream's context.
  CUevent make_event() const;

 private:
  class Waits;
  class WaitsElsewhere;
  class MarksElsewhere;
  // The event of a mark, made when it is first used. Throws Refusal.
  CUevent event_of(StreamState& state, std::uint32_t slot);
  // The stream with this handle, if it is one of ours, or was adopted and is still there. In the context of its device.
  // Throws Refusal.
  std::optional<StreamIndex> find(CUstream handle, std::int32_t device) const;
  template <class F>
  void order_theirs(CUstream theirs, std::int32_t device, F&& f);
  CUresult query(CUstream handle, CUcontext context) const {
    return is_captured(handle) ? CUDA_ERROR_NOT_READY : now_.query(handle, context);
  }
  void require_producers_well(const dataflow::Snapshot& complete);
  bool has_nothing_to_do(StreamIndex stream);
  void wake(StreamIndex stream);
  void rest_woken() noexcept;
  StreamIndex new_slot(std::int32_t device);
  StreamIndex keep(CUstream made, std::int32_t device, CUcontext context);

  Devices& devices_;
  dataflow::Timeline& timeline_;
  Surroundings& around_;
  const Table& table_;
  const DriverNow& now_;
  StreamFollower* follower_ = nullptr;
  std::deque<StreamState> streams_;
  std::vector<StreamState*> by_index_;  // of them: a deque divides to find one
  mutable std::mutex mutex_;            // the reactor reads handles while a stream is added or destroyed
  std::map<std::pair<CUstream, std::int32_t>, StreamIndex> adopted_;  // each device has a null stream
  std::unordered_map<CUstream, StreamIndex> ours_;
  static constexpr std::size_t most_left = 32;
  std::deque<StreamIndex> left_;      // adopted, and needed by nobody; the last one was left last
  std::vector<StreamIndex> woken_;    // streams of others that work was put on
  std::vector<StreamIndex> closing_;  // closed by their users, with work that has not passed
  std::vector<StreamIndex> spare_slots_;
  std::optional<std::int32_t> last_device_;  // of the stream that was made last
  bool spans_devices_ = false;               // there were streams of several
  std::set<StreamIndex> unordered_;
  std::map<std::int32_t, std::vector<CUevent>> spare_events_;  // by device
};

}  // namespace aiocuda::driver
