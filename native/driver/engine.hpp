// What there is once per process: the driver's table, devices, streams, the timeline, memory that
// waits to be freed, what is pending, and who waits for room.
//
// Always true: memory is freed only behind all work that uses it; a finalizer never calls the driver
// in the middle of a submission. Guarded by the GIL, but for `pending` and `lines`, which have locks of their own.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "../completion/completion.hpp"
#include "../completion/line.hpp"
#include "../completion/reactor.hpp"
#include "../dataflow/asked.hpp"
#include "../dataflow/operation.hpp"
#include "../dataflow/placing.hpp"
#include "../dataflow/scratch.hpp"
#include "captures.hpp"
#include "executable_store.hpp"
#include "../interpreter.hpp"
#include "memory.hpp"
#include "staging.hpp"
#include "table.hpp"

namespace aiocuda::driver {
namespace nb = nanobind;
using dataflow::StreamIndex;
using dataflow::Tick;

struct DeviceState {
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  StreamIndex default_stream = 0;
  std::optional<StreamIndex> aside{};  // for what must hold up no work: freeing what several streams used, and the like
  std::vector<std::optional<bool>> peers{};  // by ordinal: does this device reach the other's memory?
  bool writes_flags = true;                  // as far as is known: streams can write to memory
  ExecutableStore executables{};
};

struct StreamState {
  CUstream handle = nullptr;
  std::int32_t device = 0;
  CUevent mark = nullptr;      // re-recorded at will: a wait binds the record that precedes it
  std::array<CUevent, dataflow::Timeline::most_marks> marks{};  // the timeline's, made when they are first used
  CUstream side = nullptr;     // where a point in the middle of the stream is waited for
  std::optional<completion::Slot> slot{}, side_slot{};  // whose flags the stream, and the side stream, write
  struct Ticketed {
    completion::Ticket ticket;
    dataflow::Timeline::Snapshot complete;  // what has passed once it is written
  };
  std::deque<Ticketed> tickets{};  // that the stream was given to write, and that are not known to be written
  std::uint64_t noted = 0;         // how much it held when its progress was last noted
  std::uint32_t generation = 0;  // how many streams had this slot before
  std::uint64_t before = 0;      // what they submitted
  bool owned = true;
  bool closing = false;        // no longer handed out; destroyed when its work has passed
  nb::object keepalive;        // of a stream that is somebody else's
};

// Functions of Python's that make the errors.
struct Hooks {
  nb::object refused;  // (code, function, op | None, asked_bytes, device) -> exception
  nb::object lost;     // (code, op | None, device) -> exception
  nb::object lift;     // what a callback returned -> an operation, or the value
  nb::object open;     // (ordinal): opens a device at its first use
  nb::object stream;   // (stream's id, ordinal) -> Stream
  nb::object lanes;    // (policy, ordinal, op that needs them) -> the ids of its streams there, which it keeps
  nb::object named;    // (exception, op) -> the exception, which names an operation where a device was lost
  nb::object over_limit;  // (asked_bytes, device, limit_bytes) -> exception
  nb::object over;        // () -> the exception for what needs the driver when the engine is over
  nb::object device_array, host_array;  // the classes of results
};

// Buffers over memory of somebody else's, by where the allocation begins: each is one buffer while somebody holds a
// part of it or the device still works on it, so that its hazards are not forgotten.
class Borrowed final : public dataflow::MemoryOwner {
 public:
  dataflow::BufferRef of(std::uint64_t base, std::uint64_t size_bytes, std::int32_t device);
  void take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept override;
  // Forgets those that nobody holds and nothing works on.
  template <class HasPassed>
  void forget(HasPassed&& has_passed) {
    std::erase_if(idle_, [&](const auto& each) { return has_passed(*each.second); });
  }

 private:
  std::unordered_map<std::uint64_t, dataflow::Buffer*> held_;  // whose holders own them
  std::unordered_map<std::uint64_t, std::unique_ptr<dataflow::Buffer>> idle_;
};

class Engine final : public dataflow::MemoryOwner {
 public:
  static Engine& get();

  void load(Table table);  // once; the reactor starts with the first device

  void open_device(std::int32_t ordinal, CUcontext context, CUmemoryPool pool);
  DeviceState& device(std::int32_t ordinal);
  const std::vector<std::optional<DeviceState>>& devices() const { return devices_; }

  StreamIndex create_stream(std::int32_t device, int priority);
  StreamIndex adopt_stream(CUstream handle, std::int32_t device, nb::object keepalive);
  void close_stream(StreamIndex stream);
  StreamState& stream(StreamIndex index) { return streams_.at(index); }
  dataflow::StreamId id_of(StreamIndex index) const {
    return static_cast<dataflow::StreamId>(streams_.at(index).generation) << 32 | index;
  }
  std::size_t stream_count() const { return streams_.size(); }

  // Orders later work of `stream` after what `other` holds so far, whoever submitted it.
  CUresult wait(StreamIndex stream, StreamIndex other);
  // Is somebody capturing it? A question about it would end the capture.
  bool is_captured(CUstream handle) const;
  // Has a stream done all its work, is its context well? While somebody captures it nothing is known: not ready.
  CUresult query(CUstream handle) const;
  // Throws Refusal where somebody captures a stream that is not ours: what is put there now does not run.
  void require_not_captured(StreamIndex stream);
  // The timeline's marks: made behind all that a stream holds now; waited for by another.
  CUresult put_mark(StreamIndex stream, std::uint32_t slot);
  CUresult wait_for_mark(StreamIndex stream, StreamIndex other, std::uint32_t slot);

  // A policy's streams on a device, made where an operation is the first to go there.
  dataflow::Lanes& lanes(const dataflow::Policy& policy, std::int32_t device_, dataflow::Op& op) {
    const auto slot = static_cast<std::size_t>(device_);
    if (policy.placed.size() > slot && !policy.placed[slot].streams.empty()) return policy.placed[slot];
    return make_lanes(policy, device_, op);
  }
  // Does a device reach the other's memory? Makes it so where it can be.
  bool is_peer(std::int32_t device, std::int32_t other);

  // Takes in that a stream is so far. Throws Refusal where what it was ordered after, on another device, was lost: a
  // stream does not wait for a context that is broken, and goes on with what is not there.
  void learn(const dataflow::Timeline::Snapshot& complete);
  // Has it passed? Asks the driver where nothing is known. Throws Refusal on a broken context.
  bool is_complete(Tick tick);
  std::vector<Tick> incomplete(const std::vector<Tick>& ticks);

  // A point of a stream that can be asked about and waited for later, whatever is submitted meanwhile.
  // Its event is used again afterwards.
  class Mark {
   public:
    Mark(dataflow::Timeline::Snapshot complete, std::int32_t device, CUevent event)
        : complete_(std::move(complete)), device_(device), event_(event) {}
    Mark(Mark&& other) noexcept
        : complete_(std::move(other.complete_)), device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
    Mark& operator=(Mark&&) = delete;
    ~Mark() {
      // An event may be recorded again while somebody waits for an earlier record of it.
      if (event_) Engine::get().spare_events_[static_cast<std::size_t>(device_)].push_back(event_);
    }
    StreamIndex stream() const { return complete_.last.stream; }
    bool covers(Tick tick) const { return complete_.last.stream == tick.stream && complete_.last.count >= tick.count; }
    const dataflow::Timeline::Snapshot& complete() const { return complete_; }  // what has passed once the event has
    CUevent event() const { return event_; }

   private:
    dataflow::Timeline::Snapshot complete_;
    std::int32_t device_;
    CUevent event_;
  };
  Mark mark(StreamIndex stream);

  // A wait for streams: what the device will write, and what has passed once it has.
  struct Armed {
    struct Part {
      StreamIndex stream;
      std::optional<completion::Ticket> ticket;  // none: the reactor will have to ask
      dataflow::Timeline::Snapshot complete;
      CUevent event;                             // of the mark, where there is one
    };
    std::vector<Part> parts;
    bool has_tickets() const {
      return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.ticket.has_value(); });
    }
  };
  // For the marks, or where a tick's stream has none, for all that the stream holds so far; `whoever`: also what others
  // submitted to it.
  Armed arm(const std::vector<Tick>& ticks, const std::vector<Mark>& marks, bool whoever = false);
  // So that it is known how far a long stream is: to be called after each submission.
  void note_progress(StreamIndex stream);
  // Does a stream hold so many submissions that have not passed? The driver's queue must not fill: it would keep
  // the GIL while it waits.
  bool is_full(StreamIndex stream, std::uint64_t most);
  // The same, as those see it who wait for room; of a device, how much memory arrays hold.
  completion::Level level(completion::Lane lane);
  // Has the next of those called when there is room for them: to be called when somebody took a place, or his turn.
  void keep_moving(completion::Lane lane);
  // The line of those who wait for memory of a device.
  completion::Lane memory_lane(std::int32_t device_) { return device(device_).default_stream | completion::memory_bit; }

  std::uint64_t count_streams(std::int32_t device) const;
  // Has the device passed all that was submitted here? Throws Refusal on a broken context.
  bool is_idle(std::int32_t device);

  // Has the device written it all? Needs neither the GIL nor the driver.
  bool has_passed(const Armed& armed) const;
  void learn(const Armed& armed);
  // From here on the reactor looks, or asks; `then` is called on its thread, when all is learnt.
  std::shared_ptr<completion::Completion> watch(const Armed& armed, const std::function<void()>& then = {});

  // How long recent waits took, in microseconds: a moving average.
  std::atomic<float> recent_wait_us{0};
  void note_wait(completion::Pending::Clock::duration time);
  std::atomic<std::uint64_t> spins{0}, spins_that_paid{0}, without_flag{0};
  const completion::ReactorCounts* reactor_counts() const { return reactor_ ? &reactor_->counts() : nullptr; }

  // `before_retry` is called where memory that is to be freed may help.
  dataflow::BufferRef allocate_device(std::int32_t device, std::uint64_t size_bytes, StreamIndex stream, const std::function<void()>& before_retry);
  dataflow::BufferRef allocate_host(std::uint64_t size_bytes);
  // Where no block is kept from before, the driver may wait for the device; the GIL is given up meanwhile, so nothing must be
  // held back.
  dataflow::BufferRef allocate_managed(std::int32_t device, std::uint64_t size_bytes);
  dataflow::BufferRef allocate_interprocess(std::int32_t device, std::uint64_t size_bytes);
  // The same for a buffer that is there and has no memory yet; in page-locked memory where it is the host's. The line of
  // the program that runs now has made it, and the limit in force there holds; nothing waits.
  void allocate(dataflow::Buffer& buffer);
  void take_back(std::unique_ptr<dataflow::Buffer> buffer) noexcept override;
  // Frees what is due: in stream order on a device, when it has passed for page-locked memory.
  void collect();
  // Has the driver take note of frees that have passed: it does when it is waited for, not when it is asked. Waits for
  // nothing.
  void settle_frees(std::int32_t device);

  // Takes over an image that was loaded on a device. It is unloaded when nobody holds it, what used it has passed, and
  // the device has nothing else to do: NVIDIA's driver may wait for the device before it unloads.
  dataflow::BufferRef own_image(CUlibrary library, std::int32_t device);
  // A launch that will be the stream's next submission uses the image.
  void note_use(dataflow::Buffer& image, StreamIndex stream) {
    image.hazards.commit({0, image.size_bytes}, false, {stream, timeline.submitted(stream) + 1});
  }
  // Unloads images that nobody holds and whose users have passed, also while the device does other work: the driver may
  // wait for that, and the GIL is given up meanwhile.
  void unload_images(std::int32_t device);
  std::size_t dropped_image_count() const { return dropped_images_.size(); }
  std::size_t image_count() const { return image_count_; }  // that are loaded

  // Keeps an object until the device has passed a tick.
  void retain(Tick until, nb::object object) { retained_.push_back({until, std::move(object)}); }
  // A stream of the device that no policy uses, for what must hold up no work.
  StreamIndex aside(std::int32_t device);
  // Orders later work of a stream after all that touches a buffer's bytes.
  void order(StreamIndex stream, const dataflow::Buffer& buffer, dataflow::Span span);

  // The buffer of the allocation around an address, the same one for each of its parts; also of the engine's own.
  dataflow::BufferRef borrow(CUdeviceptr address, std::uint64_t size_bytes, std::int32_t device);

  // What arrays hold on a device, and the most they held since that was last looked at anew.
  struct Account {
    std::uint64_t used_bytes = 0, peak_bytes = 0;
    std::uint64_t managed_bytes = 0;  // are none of the device's memory
    void add(std::uint64_t size_bytes) {
      used_bytes += size_bytes;
      peak_bytes = std::max(peak_bytes, used_bytes);
    }
  };
  Account& account(std::int32_t device);
  // Would arrays hold no more than a limit with so much more? What nobody holds any more does not count, where it is freed.
  bool has_room(const dataflow::MemoryLimit& limit, std::uint64_t size_bytes) {
    return size_bytes <= limit.most_bytes && account(limit.device).used_bytes <= limit.most_bytes - size_bytes;
  }
  bool has_returned() const { return !returned_.empty(); }
  [[noreturn]] void raise_over_limit(const dataflow::MemoryLimit& limit, std::uint64_t asked_bytes);
  // The buffers that somebody holds on a device, or in page-locked memory for `host_ordinal`; or in a device's managed
  // memory. The latest first.
  template <class F>
  void each_buffer(std::int32_t ordinal, bool is_managed, F&& f) const {
    for (const dataflow::Buffer* each = own_.next; each; each = each->next)
      if (each->device == ordinal && each->holders && each->kind != dataflow::MemoryKind::opened &&
          (each->kind == dataflow::MemoryKind::managed) == is_managed)
        f(*each);
  }
  BlockPool<PageLocked>& page_locked() { return page_locked_; }
  BlockPool<Managed>& managed(std::int32_t device) { return managed_.try_emplace(device, table).first->second; }
  BlockPool<Interprocess>& interprocess(std::int32_t device) { return interprocess_.try_emplace(device, table).first->second; }
  // What another process needs to open an array's memory, and to wait for what uses the array now.
  struct Exported {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    std::uint64_t block_bytes;  // of all that is opened
  };
  Exported export_array(const dataflow::Array& array);
  // Memory of another process: the same buffer as long as somebody here holds it or the device works on it; closed then.
  dataflow::BufferRef open_memory(const CUipcMemHandle& handle, std::uint64_t block_bytes, std::int32_t device);
  // Another process' event, which whoever asked destroys.
  CUevent open_event(const CUipcEventHandle& handle, std::int32_t device);
  // Gives back the device's blocks that nobody uses. Waits until it has done all its work, if there are any; the GIL is given
  // up meanwhile.
  void trim_blocks(std::int32_t device);
  // Tells the driver how an array in managed memory will be used.
  CUresult advise(const dataflow::Array& array, CUmem_advise advice, CUmemLocation location);

  // Must the driver be left alone? The interpreter is ending, or this process is a fork of the one that started the driver. A
  // finalizer then gives nothing back, and takes no lock: a thread that is gone in a fork may hold it.
  bool is_over() const { return is_forked() || interpreter::is_ending(); }
  // To be called where a call from Python begins that needs the driver, before it takes a lock: raises Python's error where
  // the engine is over.
  void require_usable() const {
    if (is_over()) [[unlikely]] raise_over();
  }
  void require_not_forked() const {
    if (is_forked()) [[unlikely]] raise_over();
  }
  bool is_forked() const { return is_forked_.load(std::memory_order_relaxed); }
  std::int64_t starter() const { return starter_; }  // the process that started the driver

  Table table;
  dataflow::Timeline timeline;
  Hooks hooks;
  completion::Orphans orphans;
  completion::Pending pending;
  completion::Lines lines{pending};
  Staging staging{*this};

  // Held during a walk; a walk may start another from a callback.
  class Submission;
  std::recursive_mutex submitting;
  int depth = 0;
  dataflow::Scratch<nb::handle> scratch;  // of the outermost walk

 private:
  Engine() : page_locked_(table) {}
  ~Engine() override = default;

  // Events that are not in use; the reactor gives them back.
  class SpareEvents {
   public:
    CUevent take();  // null: there is none
    void give_back(CUevent event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    }

   private:
    std::mutex mutex_;
    std::vector<CUevent> events_;
  };
  // An event for one record of it, about which the reactor asks.
  class PointEvent {
   public:
    PointEvent(Engine& engine, std::int32_t device);
    PointEvent(const PointEvent&) = delete;
    PointEvent& operator=(const PointEvent&) = delete;
    ~PointEvent() { spare_.give_back(event_); }
    CUcontext context() const { return context_; }
    CUevent event() const { return event_; }

   private:
    SpareEvents& spare_;
    CUcontext context_;
    CUevent event_;
  };
  bool has_passed(const PointEvent& point);
  void watch_point(const Armed::Part& part, std::uint64_t number);

  dataflow::Lanes& make_lanes(const dataflow::Policy& policy, std::int32_t device, dataflow::Op& op);
  CUevent make_event();
  std::int32_t ask(StreamIndex stream);
  // The streams of other devices that must be well for this to have passed.
  std::vector<StreamIndex> foreign_producers(const dataflow::Timeline::Snapshot& complete) const;
  void destroy_closed_streams();
  // Is no number of a slot on its way any more? Throws Refusal on a broken context.
  bool has_written_flags(const StreamState& state);
  void allocate_device(dataflow::Buffer& buffer, StreamIndex stream, const std::function<void()>& before_retry);
  void allocate_host(dataflow::Buffer& buffer);
  void take_in(dataflow::Buffer& buffer);
  template <class Kind>
  CUresult allocate_block(BlockPool<Kind>& pool, dataflow::Buffer& buffer);
  bool try_free(dataflow::Buffer& buffer);
  void free_device(dataflow::Buffer& buffer);
  void note_freed(const dataflow::Buffer& buffer);
  void collect_returned();
  void close_memory(CUdeviceptr address);
  void unload_idle_images();
  void unload(std::vector<std::unique_ptr<dataflow::Buffer>> images);
  struct Waits;
  bool has_passed(const dataflow::Buffer& buffer);
  void drop_retained();
  void start_reactor(std::int32_t ordinal);
  CUstream side_stream(StreamState& state);
  const StreamState::Ticketed* ticket_behind(StreamState& state, std::uint64_t count);
  std::optional<completion::Ticket> write_ticket(StreamState& state, CUstream stream, std::optional<completion::Slot>& slot);
  StreamIndex new_stream_slot();

  // Ends the threads; the interpreter's end has come so far that no other thread is in Python.
  void shut_down();
  [[noreturn]] void raise_over() const;

  std::atomic<bool> is_forked_{false};
  std::int64_t starter_ = 0;
  std::vector<std::optional<DeviceState>> devices_;
  std::deque<StreamState> streams_;
  mutable std::mutex streams_mutex_;  // the reactor reads handles while a stream is added
  std::map<std::pair<CUstream, std::int32_t>, StreamIndex> adopted_;  // each device has a null stream
  std::vector<StreamIndex> closing_;  // closed by their users, with work that has not passed
  std::vector<StreamIndex> spare_slots_;
  std::vector<std::unique_ptr<dataflow::Buffer>> returned_;
  std::vector<std::unique_ptr<dataflow::Buffer>> dropped_images_;  // that nobody holds, and that are loaded still
  std::size_t image_count_ = 0;
  std::vector<std::pair<std::int32_t, CUdeviceptr>> to_close_;  // other processes' memory, by device
  dataflow::Buffer own_{};  // the head of the list of buffers
  struct Retained {
    Tick until;
    nb::object object;
  };
  std::deque<Retained> retained_;
  Borrowed borrowed_;
  std::vector<Account> accounts_;  // by device
  std::vector<std::vector<CUevent>> spare_events_;  // by device
  std::deque<SpareEvents> spare_point_events_;      // by device
  BlockPool<PageLocked> page_locked_;
  std::map<std::int32_t, BlockPool<Managed>> managed_;            // by device
  std::map<std::int32_t, BlockPool<Interprocess>> interprocess_;  // by device
  std::optional<completion::SlotTable> slots_;
  completion::Points points_;
  std::unique_ptr<completion::Reactor> reactor_;
};

// Calls what may wait for work that only goes on when another thread has the GIL.
inline constexpr auto without_gil = [](auto&& call) {
  const nb::gil_scoped_release release;
  return call();
};

// Binds contexts for the time of a submission, and puts back what the thread had. Until something is
// bound it calls nothing: work that touches no device needs no driver.
class ContextScope {
 public:
  explicit ContextScope(Engine& engine) : engine_(engine) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (before_ && bound_ != before_) engine_.table.cuCtxSetCurrent(before_);
  }
  void bind(std::int32_t device) {
    const CUcontext context = engine_.device(device).context;
    if (!asked_) {
      relaxed_.emplace(engine_.table);
      engine_.table.cuCtxGetCurrent(&before_);
      bound_ = before_;
      asked_ = true;
    }
    if (bound_ == context) return;
    engine_.table.cuCtxSetCurrent(context);
    bound_ = context;
  }

 private:
  Engine& engine_;
  bool asked_ = false;
  std::optional<RelaxedCaptures> relaxed_;
  CUcontext before_ = nullptr, bound_ = nullptr;
};

// The right to submit. Waiting for it gives up the GIL: who has it may need the GIL to go on.
class Engine::Submission {
 public:
  explicit Submission(Engine& engine) : engine_(engine) {
    interpreter::guard_thread();
    engine_.require_usable();
    if (!engine_.submitting.try_lock()) {
      nb::gil_scoped_release release;
      engine_.submitting.lock();
    }
    ++engine_.depth;
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
  ~Submission() {
    // Somebody may wait for memory that was let go of meanwhile.
    if (--engine_.depth == 0 && engine_.has_returned() && !engine_.lines.is_empty()) engine_.collect();
    engine_.submitting.unlock();
  }

 private:
  Engine& engine_;
};

}  // namespace aiocuda::driver
