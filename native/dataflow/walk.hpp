// The walk: visits an operation and what it needs, decides stream, waits and order, and tells a sink.
//
// Always true: producers come before consumers, arguments from left to right; an operation that has
// run is a constant; what waits for the host is parked on the walk's path, and everything that does not wait for it
// goes on. A walk that stops goes on where it stopped: no operation is looked at more often than something happens to
// it (path.hpp). A sink performs (driver/submit_sink.hpp) or writes down (explain_sink.hpp): what is decided here is
// decided once.
//
// clang-format off
// A sink has
//   Value                            a result, cheap to copy, valid as long as the sink's walk
//   Timeline& timeline()
//   RangeHazards& hazards(Buffer&)   the hazards it may change
//   bool is_done(op), is_failed(op), Value result(op), Value constant(object)
//   const Array* array(value)        null where it is none (or not known yet: is_unknown(value))
//   Value item(value, index), Value tuple(values)
//   PolicyStreams& policy_streams(op, policy, device, priority), device_of(stream), is_open(stream)
//   StreamId ask(policy, op, device, needs, policy_streams), look(stream)
//                                    for policies that want it
//   void mark(op, stream, slot), wait(op, stream, other, slot)
//                                    for an operation; see Timeline::order
//   void admit_others(op, use)       what others do with bytes that are lent, by us or to us, is in the hazards
//   void note_use(use, tick)         such bytes were used by work that was submitted
//   void put_in_doubt(op, uses)      a collective's: it may turn out to have failed
//   void launch(op, stream, device), copy(op, to, from, stream)
//   fill(op, array, way, stream)     `way`: memory that is filled and copied from, or null
//   Value create(op, stream, device), create_host(op, device)
//   bool is_peer(device, device)
//   Value staging(op, array, device, stream)
//                                    memory on an operation's way, page-locked for no device
//   Value page_locked(op, pageable, device)
//                                    page-locked memory with those contents, read now
//   bool stages_copies               else it has none of these, for copies between arrays and pageable memory:
//   Buffer& pageable(), stages(pageable, array), staging_full(device, pageable)
//   require_file(op, pageable, device, array, uses)
//                                    throws HostWait where a file is to be opened first
//   upload(op, to, stream), download(op, from, stream)
//   Value foreign(op, values, stream, device)
//   replay(op, replay, stream, device)
//                                    launch a graph
//   optional<Value> call(op, value)  run a callback at submission; none: it returned an operation
//   optional<Value> map(op, value)   a function of a complete value; none: it is called after the walk
//   bool is_complete(tick), is_full(stream, most)
//   hold_back(), make_held_calls(), make_held_calls_now()
//                                    there are branches; what was held back is to be done, at the end or in the middle
//   require_open(op, device), require_loaded(op, device), require_made(op), require_unclaimed(uses)
//                                    throw HostWait where work on the host must end first
//   void finish(op, value), fail(op, error)
// clang-format on
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "path.hpp"
#include "performing.hpp"

namespace aiocuda::dataflow {

// The walks that are going on: each but the first was begun by a function that the one before it called. Guarded by the
// right to submit, which every walk holds from its beginning to its end, so they end in the opposite order.
class Walkers {
 public:
  class Active {
   public:
    explicit Active(std::uint64_t number) : number_(number), around_(std::exchange(innermost, this)) {}
    Active(const Active&) = delete;
    Active& operator=(const Active&) = delete;
    ~Active() { innermost = around_; }

   private:
    friend class Walkers;
    const std::uint64_t number_;
    const Active* const around_;
  };
  static bool is_active(std::uint64_t number) {
    const Active* each = innermost;
    while (each && each->number_ != number) each = each->around_;
    return each != nullptr;
  }

 private:
  static inline const Active* innermost = nullptr;
};

template <class Sink>
class Walk : private Performing<Sink> {
  using Base = Performing<Sink>;
  using Value = Sink::Value;
  using Base::sink_, Base::placement_, Base::consumer_, Base::placing_, Base::is_shared_, Base::is_due_,
      Base::as_deferred, Base::perform, Base::raise_waits_for_itself;

 public:
  // `path`: of the same root and placement at each walk. It is empty at the first one.
  Walk(Sink& sink, const Placement& placement, Scratch<Value>& scratch, Path& path)
      : Base(sink, placement, scratch),
        root_placement_(&placement),
        path_(path),
        stack_(path.stack),
        waits_(scratch.waits) {
    waits_.clear();
  }

  // The walk stops after so many operations, if there are more: others have their turn then.
  void stop_after(std::uint32_t operations) { most_ = operations; }
  std::uint32_t performed() const { return performed_; }

  // True: the root has its result. False: the host must wait for `waits()`, or call the functions that are due on the
  // path; another walk then goes on where this one stopped.
  bool run(nb::handle root) {
    root_ = as_op(root);
    root_->is_asked = true;
    if (sink_.is_done(*root_)) {
      path_.clear();
      return true;
    }
    if (Walkers::is_active(path_.number) || is_on_path(*root_)) raise_waits_for_itself();
    const Walkers::Active active(path_.number);
    try {
      if (path_.is_begun()) {
        go_on();
      } else {
        stack_.push_back({Held(root)});
      }
      do {
        while (!stack_.empty()) {
          visit();
          if (performed_ >= most_ && !stack_.empty()) [[unlikely]] {
            sink_.make_held_calls();
            is_turn_over_ = true;
            return false;
          }
        }
      } while (path_.go_on());
      sink_.make_held_calls();
      if (sink_.is_failed(*root_)) sink_.raise_again(*root_);
      if (!sink_.is_done(*root_)) note_waits();
    } catch (const Full& full) {
      sink_.make_held_calls();
      (full.is_room ? is_full_ : is_queue_full_) = true;
      waits_.assign(1, full.until);  // what comes later must not come first: nothing goes on meanwhile
      return false;
    } catch (const FullMemory& full) {
      sink_.make_held_calls();
      full_memory_ = full;
      return false;
    } catch (const HostWait&) {
      sink_.make_held_calls();
      return false;
    } catch (nb::python_error& error) {
      fail(failing_ || stack_.empty() ? nb::borrow(error.value()) : stack_.back().held.op().failure_of(error.value()));
      sink_.make_held_calls();
      throw;
    } catch (...) {
      path_.clear();
      sink_.make_held_calls();
      throw;
    }
    if (!sink_.is_done(*root_)) return false;
    path_.clear();
    return true;
  }

  const std::vector<Tick>& waits() const { return waits_; }
  bool is_full() const { return is_full_ || is_queue_full_; }  // it stopped because a stream holds as much as it may
  // Or the driver as much as it can, for which nobody stands in line.
  bool is_queue_full() const { return is_queue_full_; }
  const std::optional<FullMemory>& full_memory() const { return full_memory_; }  // or arrays as much as they may
  bool is_turn_over() const { return is_turn_over_; }                            // or because others have their turn

 private:
  // Somebody may have done the work on the host that parked operations wait for.
  [[gnu::noinline]] void go_on() {
    if (path_.has_branches) sink_.hold_back();
    for (const Path::Due& each : std::exchange(path_.due, {})) {
      const auto& op = static_cast<const CallOp&>(*each.frame->op);
      if (sink_.is_done(op)) {
        path_.end(each.frame);
        continue;
      }
      path_.due.push_back(each);
      failing_ = each.frame;
      if (sink_.is_failed(op)) sink_.raise_again(op);
      if (op.runner == PyThread_get_thread_ident()) raise_waits_for_itself();
      failing_ = nullptr;
    }
    path_.look([this](const Op& op, Tick tick) {
      return sink_.is_done(op) || sink_.is_failed(op) || sink_.is_complete(tick);
    });
  }

  void visit() {
    ++Path::visits();
    Path::Entry& entry = stack_.back();
    Op& op = entry.held.op();
    if (sink_.is_done(op)) return pop();
    if (sink_.is_failed(op)) sink_.raise_again(op);
    const bool is_parked_by_another = path_.find_parked(&op) != nullptr && !(entry.frame && entry.frame->order);
    if (is_parked_by_another) return stack_.pop_back();
    consumer_ = entry.consumer;
    put_in_force(consumer_ ? consumer_->placement : root_placement_);
    op.walker = path_.number;
    entry.is_begun = true;
    bool stalls = false;
    if (push_children(op, stalls)) return;
    if (stalls) return park(op);
    // Beside walks, who holds it may consume it: one that does, and others that may come.
    is_shared_ = &op == root_ || Py_REFCNT(stack_.back().held.object().ptr()) > static_cast<Py_ssize_t>(op.held) + 1;
    const Step step = perform(op);
    if (step == Step::finished) {
      ++performed_;
      pop();
    }
    if (step == Step::stalled) park_for_host(op);
  }

  [[gnu::noinline]] void note_waits() {
    is_stuck_ = !path_.is_waiting();
    if (is_stuck_) raise_waits_for_itself();
    path_.add_waits(waits_);
  }

  // A failure is the failure of all that depends on it here.
  [[gnu::cold]] void fail(nb::handle error) {
    const auto fail_one = [&](Op& op) { sink_.fail(op, error); };
    if (failing_) {
      path_.fail_parked(failing_, fail_one);
      fail_one(*root_);
    } else {
      path_.fail(fail_one);
    }
    if (is_stuck_) path_.fail_all_parked(fail_one);
    path_.clear();
  }

  void pop() {
    Op& op = stack_.back().held.op();
    if (op.walker == path_.number) op.walker = 0;
    path_.end_top();
  }

  // Some of what it needs is parked: it is visited again when all of that has ended.
  [[gnu::noinline]] void park(Op& op) {
    op.walker = 0;
    Frame* const frame = path_.park();
    each_needed(op, [&](nb::handle, Op& child) {
      if (Frame* const parked = path_.find_parked(&child)) path_.wait_for(frame, parked);
    });
  }
  // It waits for work on the device; or for its function, which is called outside of walks.
  [[gnu::noinline]] void park_for_host(Op& op) {
    op.walker = 0;
    Frame* const frame = path_.park();
    for (const Tick tick : op.ready)
      if (!is_due_ && !sink_.is_complete(tick)) path_.wait_until(frame, tick);
    if (is_due_ || frame->missing == 0) path_.due.push_back({frame, placement_of(op, *placement_)});
  }

  static bool is_on_path(const Op& op) { return op.walker && Walkers::is_active(op.walker); }

  // The frame of what is on top, as those see it that are done for it.
  [[gnu::noinline]] Frame* as_consumer(std::size_t at, Op& op) {
    Path::Entry& entry = stack_[at];
    const bool is_call = op.kind == Kind::call, is_structure = op.kind == Kind::gather || op.kind == Kind::pick;
    const bool is_plain =
        is_call && static_cast<CallOp&>(op).mode != CallMode::map && static_cast<CallOp&>(op).title.empty();
    if ((is_structure || is_plain) && !op.put.is_valid()) return entry.consumer;
    Frame* const frame = path_.frame_of(entry);
    if (!frame->placement) frame->placement = placement_;
    // Operations that a function of `then` returned are under the placement of that `then`.
    if (is_call && static_cast<CallOp&>(op).inner.is_valid() && op.put.is_valid() && !frame->own.is_valid()) {
      frame->own = placement_of(op, *placement_);
      frame->placement = nb::inst_ptr<Placement>(frame->own);
    }
    return frame;
  }

  void put_in_force(const Placement* placement) {
    if (placement_ == placement) return;
    placement_ = placement;
    placing_.put_in_force(*placement);
  }

  // Calls `f(argument, op)` for all that comes before an operation and has no result yet.
  template <class F>
  void each_needed(Op& op, F&& f) {
    each_argument(op, [&](nb::handle argument) {
      if (CreateOp* create = as_deferred(op, argument)) argument = create->like;
      Op* child = as_op(argument);
      if (child && !sink_.is_done(*child)) f(argument, *child);
    });
  }

  // True: what the operation needs comes first. Else `stalls` says whether some of it waits for the host.
  bool push_children(Op& op, bool& stalls) {
    const std::size_t before = stack_.size();
    Frame* consumer = nullptr;
    each_needed(op, [&](nb::handle argument, Op& child) {
      if (is_on_path(child)) raise_waits_for_itself();
      if (path_.find_parked(&child)) {
        stalls = true;
        return;
      }
      if (stack_.size() == before) consumer = as_consumer(before - 1, op);
      stack_.push_back({Held(argument), consumer});
    });
    if (stack_.size() == before) return false;
    order_children(before);
    return true;
  }
  [[gnu::noinline]] void order_children(std::size_t before) {
    if (stack_.size() - before > 1) {
      sink_.hold_back();
      path_.has_branches = true;
    }
    std::reverse(stack_.begin() + static_cast<std::ptrdiff_t>(before), stack_.end());  // the first argument on top
  }

  const Placement* const root_placement_;
  Op* root_ = nullptr;
  Frame* failing_ = nullptr;  // a parked operation that has failed
  bool is_stuck_ = false;     // what is parked waits for itself
  bool is_full_ = false, is_queue_full_ = false, is_turn_over_ = false;
  std::uint32_t performed_ = 0, most_ = std::numeric_limits<std::uint32_t>::max();
  std::optional<FullMemory> full_memory_;
  Path& path_;
  std::vector<Path::Entry>& stack_;
  std::vector<Tick>& waits_;
};

}  // namespace aiocuda::dataflow
