// A stream: an in-order queue of work with a thread of its own, so streams are really concurrent and
// one that waits never holds up another. All work enters through Stream::enqueue, in one order.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api.hpp"
#include "checking/checker.hpp"
#include "checking/known_memory.hpp"
#include "context.hpp"
#include "shuffle.hpp"

namespace aiocuda::emulator {
class ForeignRecord;
namespace capture {
struct Branch;
}

// One piece of work in a stream. It runs once, on the stream's thread, after everything before it;
// in a lost context it is destroyed without having run. It may report an error of the device with
// Context::fail. It must not throw. The work of a graph's node runs once in each replay.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
  // In a lost context, instead of run(): for the rare work that must tell somebody.
  virtual void drop() {}
  // Sets the priority of the stream in which it runs next, before it runs.
  virtual void set_priority(int) noexcept {}

  // For the checker of races: what it is in words (empty where it touches no memory), how it orders others besides
  // being in its stream, and, asked for when it has run, which bytes it has touched.
  virtual std::string text() const { return {}; }
  virtual checking::Ordering ordering() const { return {}; }
  virtual checking::Accesses accesses() { return {}; }

 protected:
  // Its own operation, as the checker knows it. Null where nothing is checked.
  const checking::Point& point() const noexcept { return point_; }

 private:
  friend class Stream;
  std::unique_ptr<Work> next_;
  checking::Point point_;
  std::shared_ptr<const checking::MemoryList> memory_;  // that it may use; null where nothing is checked
};

// A point in a stream: just after one piece of work. Copyable and cheap; keeps the stream alive.
// An empty ticket has always passed.
class Ticket {
 public:
  Ticket() = default;
  // A point in a stream of another process.
  explicit Ticket(std::shared_ptr<const ForeignRecord> foreign) : foreign_(std::move(foreign)) {}
  // Everything up to this point has ended (has run, or was dropped because the context was lost).
  bool passed() const noexcept;
  // For the host: blocks until passed, or until the stream's context is lost; answers that context's error.
  CUresult wait() const;
  // The same for the thread of a stream of that context: the host learns nothing by it.
  void wait_in_stream(const Context& context) const;
  // For the host: has it passed? If so, the host has learnt it.
  bool query() const;
  void observe() const;
  const std::shared_ptr<Stream>& stream() const noexcept { return stream_; }
  const std::vector<checking::Point>& points() const noexcept { return points_; }
  // A point inside of the work that this one comes just after: it has passed once the flag says so, too.
  Ticket earlier(std::shared_ptr<const std::atomic<bool>> flag, std::vector<checking::Point> points) const;

 private:
  friend class Stream;
  bool is_early() const noexcept { return flag_ && flag_->load(); }
  Ticket(std::shared_ptr<Stream> stream, std::uint64_t position, std::vector<checking::Point> points)
      : stream_(std::move(stream)), position_(position), points_(std::move(points)) {}
  std::shared_ptr<Stream> stream_;
  std::uint64_t position_ = 0;
  std::vector<checking::Point> points_;           // what the checker knows the point by; empty where nothing is checked
  std::shared_ptr<const ForeignRecord> foreign_;  // of another process, else null; then all the rest is empty
  std::shared_ptr<const std::atomic<bool>> flag_;  // of a point inside of a piece of work, else null
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind { ordinary, legacy_default, per_thread_default };

  Stream(std::shared_ptr<Context> context, unsigned flags, int priority, Kind kind);
  ~Stream();

  Context& context() const noexcept { return *context_; }
  std::uint64_t id() const noexcept { return id_; }  // unique in the process, never used again
  unsigned flags() const noexcept { return flags_; }
  int priority() const noexcept { return priority_.load(std::memory_order_relaxed); }
  void set_priority(int priority) noexcept { priority_.store(priority, std::memory_order_relaxed); }
  Kind kind() const noexcept { return kind_; }
  bool is_blocking() const noexcept { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }

  // Submits work: behind all earlier work of this stream and, for blocking streams and the legacy
  // default stream, behind each other's, as CUDA orders them. Returns at once. Every submission of
  // every API function goes through here, unless a capture takes it (capture/capture.hpp).
  void enqueue(std::unique_ptr<Work> work);
  // The same, for who waits for it: the point just after that work.
  Ticket enqueue_with_ticket(std::unique_ptr<Work> work);

  // Work that is a callable: `stream->enqueue([=] { std::memcpy(...); })`.
  template <typename Callable>
  static std::unique_ptr<Work> work_of(Callable&& callable) {
    return std::make_unique<CallableWork<std::decay_t<Callable>>>(std::forward<Callable>(callable));
  }
  template <typename Callable, typename = std::enable_if_t<std::is_invocable_v<std::decay_t<Callable>&>>>
  void enqueue(Callable&& callable) {
    enqueue(work_of(std::forward<Callable>(callable)));
  }

  // Work that is submitted from now on comes after that point of another stream.
  void wait_for(const Ticket& ticket);

  // The point after all work submitted to this stream so far.
  Ticket tail();
  // Has everything submitted so far ended? For the legacy default stream that takes in the blocking
  // streams that it orders itself with.
  bool idle() const;
  // The same for the host, which learns by it that all has ended.
  bool query();
  // Blocks until all that is so or the context is lost; answers the context's error.
  CUresult synchronise();
  // Blocks until no work is left, not even running, whether the context is lost or not; gives up
  // after the time and answers false. For the end of a context.
  bool drain(std::chrono::milliseconds patience);

  // The stream takes no more work; what it has it finishes, then its thread ends.
  void close();

  // Attributes that are kept and given back, and have no effect on a CPU.
  CUresult set_attribute(CUstreamAttrID attribute, const CUstreamAttrValue& value);
  CUresult get_attribute(CUstreamAttrID attribute, CUstreamAttrValue& value) const;

  // For Context::fail: look again, the context is lost.
  void wake_waiters();
  // For work that has passed a point inside of itself: the same, if anybody waits.
  void tell_progress();

  // The stream's part in a capture, null where it takes part in none. Under graph::graphs_mutex().
  std::shared_ptr<capture::Branch> capture_branch;

 private:
  friend class Ticket;

  template <typename Callable>
  class CallableWork final : public Work {
   public:
    explicit CallableWork(Callable callable) : callable_(std::move(callable)) {}
    void run() override { callable_(); }

   private:
    Callable callable_;
  };

  struct Place {
    std::uint64_t position;
    checking::Point point;  // null where nothing is checked
  };
  Place append(std::unique_ptr<Work> work, const std::vector<checking::Point>* after = nullptr);
  void run(Work& work);
  void go_wrong_as_planned();
  void wait_for_others();
  void wait_until(const Ticket& ticket);
  bool own_work_has_ended() const noexcept { return has_passed(submitted_.load(std::memory_order_acquire)); }
  bool has_passed(std::uint64_t position) const noexcept {
    return completed_.load(std::memory_order_acquire) >= position;
  }
  void loop();
  std::unique_ptr<Work> next();
  std::unique_ptr<Work> take_all();

  const std::shared_ptr<Context> context_;
  const std::uint64_t id_;
  const unsigned flags_;
  const Kind kind_;
  std::atomic<int> priority_;
  const std::unique_ptr<checking::Checker::Lane> lane_;  // null where nothing is checked
  const std::unique_ptr<Shuffle> shuffle_;               // null where nothing is shuffled

  // Each of these groups on a cache line that the other threads write seldom. First, what the stream's thread writes.
  alignas(64) std::unique_ptr<Work> taken_;  // its thread has taken these, and runs them next
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<int> waiters_{0};

  // What those who submit write, and all else.
  alignas(64) std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable progress_;
  std::unique_ptr<Work> first_;  // these wait to be taken
  Work* last_ = nullptr;
  checking::Point last_point_;          // of the last work submitted
  std::vector<checking::Point> after_;  // points that have passed, and that the next work is after
  bool thread_started_ = false;
  bool closed_ = false;
  bool parked_ = false;
  std::atomic<std::uint64_t> submitted_{0};

  mutable std::mutex attributes_mutex_;
  CUstreamAttrValue synchronisation_policy_{};
  CUstreamAttrValue access_policy_window_{};
  CUstreamAttrValue memory_sync_domain_{};
  CUstreamAttrValue memory_sync_domain_map_{};
};

using StreamTable = HandleTable<Stream, CUstream>;
StreamTable& streams();

// The priorities that streams can have; a lower number is a higher priority.
inline constexpr int least_stream_priority = 0;
inline constexpr int greatest_stream_priority = -5;

// The stream that a handle means in this call: 0 and CU_STREAM_LEGACY (or, under a
// PerThreadDefaultStream, 0 as CU_STREAM_PER_THREAD) are the current context's default streams;
// anything else must be a live stream. Answers, in this order: NOT_INITIALIZED, INVALID_CONTEXT (a
// default stream, and no current context), INVALID_HANDLE, the sticky error of the stream's context.
//
//   std::shared_ptr<Stream> stream;
//   if (const CUresult error = resolve_stream(handle, stream)) return error;
CUresult resolve_stream(CUstream handle, std::shared_ptr<Stream>& stream);

// The default stream that handle 0 means in this call, for the functions that take no stream.
CUresult resolve_default_stream(std::shared_ptr<Stream>& stream);

}  // namespace aiocuda::emulator
