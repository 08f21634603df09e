// How far a walk has come: the operations that it has begun, and those that wait for the host.
//
// Always true: an operation that waits for the host is parked here with the number of things that it waits for. Each of
// them tells it when it has ended, so nobody looks at it before. Operations are shared by walks, so all that concerns
// one walk is kept here and not in them. Guarded by the GIL and, while a walk goes on, by the right to submit.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../spares.hpp"
#include "operation.hpp"
#include "rare.hpp"

namespace aiocuda::dataflow {

// An operation as a path holds it. It counts what aiocuda itself holds, so that a paused walk is not taken for a
// consumer.
class Held {
 public:
  Held() = default;
  explicit Held(nb::handle op) : object_(nb::borrow(op)), op_(as_op(op)) { ++op_->held; }
  Held(Held&&) noexcept = default;
  Held& operator=(Held&& other) noexcept {
    if (this != &other) {
      drop();
      object_ = std::move(other.object_);
      op_ = other.op_;
    }
    return *this;
  }
  ~Held() { drop(); }

  bool is_valid() const { return object_.is_valid(); }
  nb::handle object() const { return object_; }
  Op& op() const { return *op_; }

 private:
  void drop() {
    if (!object_.is_valid()) return;
    --op_->held;
    if (Py_REFCNT(object_.ptr()) > 1) {  // somebody else keeps it
      op_->is_asked = true;
      object_.reset();
      return;
    }
    let_go(std::move(object_));
  }

  nb::object object_;
  Op* op_ = nullptr;  // the native part
};

// The state of an operation on the path whose arguments come first, or that waits for the host.
struct Frame {
  Op* op = nullptr;
  Held held;                             // while it is parked; else the stack has it
  Frame* consumer = nullptr;             // for whom it is done: the nearest that says where things go
  const Placement* placement = nullptr;  // in force for what it needs
  nb::object own;                        // a placement that it brings itself
  std::vector<Frame*> waiting;           // parked operations that wait for this one
  std::uint32_t missing = 0;             // how many things it waits for
  std::uint64_t order = 0;               // what was parked earlier goes on earlier
};

// Frames are used again, so that a short walk allocates nothing.
class Frames {
 public:
  static Frame* take() {
    auto& spare = spares();
    if (spare.empty()) return new Frame;
    Frame* const frame = spare.back().release();
    spare.pop_back();
    return frame;
  }
  static void give_back(Frame* frame) {
    std::unique_ptr<Frame> owned(frame);
    owned->held = {};
    owned->own.reset();
    owned->waiting.clear();
    owned->op = nullptr;
    owned->consumer = nullptr;
    owned->placement = nullptr;
    owned->missing = 0;
    owned->order = 0;
    if (spares().size() != spares_of(most_spares)) spares().push_back(std::move(owned));
  }

 private:
  static constexpr std::size_t most_spares = 4096;
  static std::vector<std::unique_ptr<Frame>>& spares() {
    static auto& kept = *new std::vector<std::unique_ptr<Frame>>;
    return kept;
  }
};

class Path {
 public:
  struct Entry {
    Held held;
    Frame* consumer = nullptr;  // as of a frame
    Frame* frame = nullptr;     // once it has one
    bool is_begun = false;
  };
  // A `map` whose value is there, and the placement that its function runs under.
  struct Due {
    Frame* frame;
    nb::object placement;
  };

  Path() {
    SpareStacks& kept = spares();
    if (kept.count) stack.swap(kept.stacks[--kept.count]);
  }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
  ~Path() {
    clear();
    constexpr std::size_t most_entries = 4096;
    SpareStacks& kept = spares();
    if (stack.capacity() <= most_entries && kept.count != spares_of(kept.stacks.size()))
      kept.stacks[kept.count++].swap(stack);
  }

  // Walks have numbers, which are never used again: an operation says by one whose path it lies on.
  static std::uint64_t next_number() {
    static std::uint64_t last = 0;
    return ++last;
  }
  // How often walks of this process looked at an operation.
  static std::uint64_t& visits() {
    static std::uint64_t count = 0;
    return count;
  }

  const std::uint64_t number = next_number();
  bool has_branches = false;
  std::vector<Entry> stack;
  std::vector<Due> due;

  bool is_begun() const { return !stack.empty() || (waiting_ && !waiting_->parked.empty()); }
  Frame* find_parked(const Op* op) const {
    if (!waiting_) [[likely]]
      return nullptr;
    return find_waiting(op);
  }
  [[gnu::noinline]] Frame* find_waiting(const Op* op) const {
    const auto found = waiting_->parked.find(op);
    return found == waiting_->parked.end() ? nullptr : found->second;
  }

  // The frame of what is on top, made where there is none.
  Frame* frame_of(Entry& entry) {
    if (!entry.frame) {
      entry.frame = Frames::take();
      entry.frame->op = &entry.held.op();
      entry.frame->consumer = entry.consumer;
    }
    return entry.frame;
  }

  // The operation on top of the stack waits for the host: parks it, and returns its frame.
  Frame* park() {
    Entry& top = stack.back();
    Frame* const frame = frame_of(top);
    frame->held = std::move(top.held);
    if (!frame->order) {
      Waiting& all = waiting();
      frame->order = ++all.orders;
      all.parked.emplace(frame->op, frame);
    }
    stack.pop_back();
    return frame;
  }
  void wait_for(Frame* parent, Frame* child) {
    ++parent->missing;
    child->waiting.push_back(parent);
  }
  void wait_until(Frame* frame, Tick tick) {
    ++frame->missing;
    ++waiting().count;
    waiting().streams[tick.stream].push({tick.count, frame});
  }

  // The operation on top has ended. Those that waited for it alone are ready to go on.
  void end_top() {
    if (Frame* const frame = stack.back().frame) [[unlikely]]
      return end_top(frame);
    stack.pop_back();
  }
  [[gnu::noinline]] void end_top(Frame* frame) {
    const Entry top = std::move(stack.back());
    stack.pop_back();
    frame->order ? end(frame) : Frames::give_back(frame);
  }
  // A parked operation has ended.
  void end(Frame* frame) {
    waiting().parked.erase(frame->op);
    for (Frame* parent : frame->waiting)
      if (--parent->missing == 0) waiting().ready.push(parent);
    Frames::give_back(frame);
  }

  // Puts the first of those that are ready on the stack.
  bool go_on() {
    if (!waiting_ || waiting_->ready.empty()) [[likely]]
      return false;
    return go_on_with_first();
  }
  [[gnu::noinline]] bool go_on_with_first() {
    Frame* const frame = waiting_->ready.top();
    waiting_->ready.pop();
    stack.push_back({std::move(frame->held), frame->consumer, frame, false});
    return true;
  }

  // Those whose work has passed are ready. `has_passed(op, tick)`
  template <class F>
  void look(F&& has_passed) {
    if (!waiting_) return;
    Waiting& all = *waiting_;
    for (auto each = all.streams.begin(); each != all.streams.end();) {
      auto& [stream, queue] = *each;
      while (!queue.empty() && has_passed(*queue.top().frame->op, Tick{stream, queue.top().count})) {
        Frame* const frame = queue.top().frame;
        queue.pop();
        --all.count;
        if (--frame->missing == 0) all.ready.push(frame);
      }
      each = queue.empty() ? all.streams.erase(each) : std::next(each);
    }
  }
  // Adds the ticks that the host must wait for: the first of each stream.
  void add_waits(std::vector<Tick>& waits) const {
    if (!waiting_) return;
    for (const auto& [stream, queue] : waiting_->streams) waits.push_back({stream, queue.top().count});
  }
  bool is_waiting() const { return (waiting_ && waiting_->count != 0) || !due.empty(); }

  // A failure is the failure of all that depends on it here: of what was begun, and of what is parked for it.
  template <class F>
  void fail(F&& fail_one) {
    std::vector<Frame*> found;
    for (Entry& entry : stack) {
      if (!entry.is_begun) continue;
      fail_one(entry.held.op());
      if (entry.frame) found.push_back(entry.frame);
    }
    fail(found, fail_one);
  }
  // The same for what is parked.
  template <class F>
  void fail_parked(Frame* frame, F&& fail_one) {
    std::vector<Frame*> found{frame};
    fail(found, fail_one);
  }
  template <class F>
  void fail_all_parked(F&& fail_one) {
    if (!waiting_) return;
    for (const auto& [op, frame] : waiting_->parked)
      if (frame->held.is_valid()) fail_one(frame->held.op());
  }

  // Forgets everything: the next walk begins at the root.
  void clear() {
    for (Entry& entry : stack)
      if (entry.held.is_valid() && entry.held.op().walker == number) entry.held.op().walker = 0;
    has_branches = false;
    if (is_begun()) [[unlikely]]
      drop_all();
  }
  [[gnu::noinline]] void drop_all() {
    // To drop these may run Python code, which must find the path empty.
    const auto entries = std::exchange(stack, {});
    const auto waiting = std::exchange(waiting_, nullptr);
    const auto dropped = std::exchange(due, {});
    for (const Entry& entry : entries)
      if (entry.frame && !entry.frame->order) Frames::give_back(entry.frame);
    if (!waiting) return;
    for (const auto& [op, frame] : waiting->parked) Frames::give_back(frame);
  }

  int traverse(visitproc visit, void* arg) const {
    for (const Entry& entry : stack) Py_VISIT(entry.held.object().ptr());
    if (waiting_) {
      for (const auto& [op, frame] : waiting_->parked) {
        Py_VISIT(frame->held.object().ptr());
        Py_VISIT(frame->own.ptr());
      }
    }
    for (const Due& each : due) Py_VISIT(each.placement.ptr());
    return 0;
  }

 private:
  // So that a short walk allocates nothing.
  struct SpareStacks {
    std::array<std::vector<Entry>, 64> stacks;
    std::size_t count = 0;
  };
  static SpareStacks& spares() {
    static auto& kept = *new SpareStacks;
    return kept;
  }

  struct Later {
    bool operator()(const Frame* a, const Frame* b) const { return a->order > b->order; }
  };
  struct Point {
    std::uint64_t count;
    Frame* frame;
    bool operator<(const Point& other) const { return count > other.count; }
  };
  // The operations that wait. Most paths have none.
  struct Waiting {
    std::uint64_t orders = 0;
    std::size_t count = 0;  // of the points that are waited for
    std::unordered_map<const Op*, Frame*> parked;
    std::map<StreamIndex, std::priority_queue<Point>> streams;
    std::priority_queue<Frame*, std::vector<Frame*>, Later> ready;
  };
  Waiting& waiting() {
    if (!waiting_) waiting_.reset(new Waiting);
    return *waiting_;
  }

  template <class F>
  void fail(std::vector<Frame*>& found, F&& fail_one) {
    std::vector<Frame*> left = found;
    while (!left.empty()) {
      Frame* const frame = left.back();
      left.pop_back();
      if (frame->held.is_valid()) fail_one(frame->held.op());
      const auto waiting = std::exchange(frame->waiting, {});
      left.insert(left.end(), waiting.begin(), waiting.end());
    }
  }

  Rare<Waiting> waiting_;
};

}  // namespace aiocuda::dataflow
