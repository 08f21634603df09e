// The driver's calls of a walk: made or given to the submission thread at once, or held back until its end. Then they
// are made stream by stream, one piece of work each.
//
// Always true: each stream gets its calls in the order in which they were decided. When somebody asks the driver about
// a stream, and when the walk ends, all calls have been made. If the driver refuses a call that was held back, the
// operations that depend on it end, and nothing else is submitted before marks and waits that it refused are made up
// for.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "../dataflow/copies.hpp"
#include "../dataflow/fills.hpp"
#include "../dataflow/held.hpp"
#include "../dataflow/pageable.hpp"
#include "../dataflow/story.hpp"
#include "block_calls.hpp"
#include "calls.hpp"
#include "giving.hpp"
#include "graph.hpp"
#include "outstanding.hpp"
#include "recording.hpp"
#include "refused.hpp"

namespace aiocuda::driver {
using dataflow::Array;

// A place beside a piece of work in its stream, whose time is measured.
struct Point {
  CUevent event = nullptr;  // null: only the host's
  trace::Number work = trace::none;
};

// Work for a stream when its turn comes; for a mark or a wait, the operation that it belongs to.
struct HeldWork {
  enum class Kind : std::uint8_t { launch, fill, copy, replay, upload, download };
  Kind kind = Kind::launch;
  nb::object op{};
  dataflow::FillBlock fill{};      // of a fill: its offset is an address
  dataflow::CopyBlock block{};     // of a copy
  std::shared_ptr<Graph> graph{};  // of a replay
  dataflow::Array array{};         // of a copy from or to pageable memory
  nb::object pageable{};
  std::vector<MemoryRange> touched{};  // where work is given
  Point point{};                       // of the kinds point_before and point_behind
};
using HeldCall = dataflow::HeldCall<HeldWork>;
using dataflow::HeldKind;

class Issuing {
 public:
  using Touched = Giving::Touched;

  // There are branches: from here on the calls for their streams are made in turn, by `make_held_calls`.
  void hold_back() { holds_back_ = true; }

  // To be called before anybody asks the driver about a stream, and before the walk ends. A refusal of the driver ends
  // the operations that depend on the call.
  void make_held_calls() {
    if (held_.empty()) {
      for (const nb::object& finished : finished_) engine_.given.note_finished(*dataflow::as_op(finished));
      return finished_.clear();
    }
    std::map<StreamIndex, nb::object> streams;  // that get calls, each with an operation that one of them is for
    std::set<StreamIndex> others;               // that they wait for
    nb::object error;
    bool is_order_lost = false;
    const auto lost = held_.make_all([&](const HeldCall& call) {
      streams.try_emplace(call.stream, call.work.op);
      if (call.kind == HeldKind::wait) others.insert(call.other);
      try {
        make(call);
        return true;
      } catch (nb::python_error& refused) {
        if (!error.is_valid()) error = nb::borrow(refused.value());
        is_order_lost = is_order_lost || call.kind != HeldKind::work;
        return false;
      }
    });
    if (is_order_lost) {
      for (const auto& [stream, op] : streams) others.insert(stream);
      for (const auto& [stream, count] : lost) others.insert(stream);
      restore_order(others);
    }
    engine_.now.note_given();
    const std::vector<nb::object> finished = std::exchange(finished_, {});
    for (const nb::object& object : finished) {
      Op& op = *dataflow::as_op(object);
      const bool is_lost = std::any_of(op.ready.begin(), op.ready.end(), [&](Tick tick) {
        const auto from = lost.find(tick.stream);
        return from != lost.end() && tick.count >= from->second;
      });
      if (is_lost)
        op.fail(error);
      else
        engine_.given.note_finished(op);
    }
    lost_ = std::move(error);
    for (const auto& [stream, op] : streams)
      if (!lost.contains(stream)) note_progress(*dataflow::as_op(op), stream);
  }

  // The same in the middle of an operation, which cannot go on when something it may depend on was lost. Wherever
  // Python may run, and another thread with it: what is counted as submitted they take for that.
  void make_held_calls_now() {
    lost_.reset();  // what an earlier walk lost has been told
    make_held_calls();
    if (!lost_.is_valid()) return;
    raise_exception(std::exchange(lost_, nb::object()));
  }

  void mark(Op& op, StreamIndex stream, std::uint32_t slot) {
    if (holds_back_)
      return hold({.kind = HeldKind::mark,
                   .stream = stream,
                   .count = next_count(stream),
                   .work = {.op = object_of(op)},
                   .slot = slot});
    put_mark(op, stream, slot);
  }
  void wait(Op& op, StreamIndex stream, StreamIndex other, std::uint32_t slot) {
    dataflow::story.note_wait(op, {stream, next_count(stream)}, other);
    if (holds_back_)
      return hold({.kind = HeldKind::wait,
                   .stream = stream,
                   .count = next_count(stream),
                   .work = {.op = object_of(op), .touched = giving_.copied()},
                   .other = other,
                   .slot = slot});
    wait_for_mark(op, {stream, next_count(stream)}, other, slot, giving_.touched());
  }

 protected:
  // `uses`: of the operation that is placed now.
  Issuing(Engine& engine, const std::vector<dataflow::Use>& uses)
      : engine_(engine), scope_(engine), giving_(engine, uses) {}
  Issuing(const Issuing&) = delete;
  Issuing& operator=(const Issuing&) = delete;
  ~Issuing() {
    if (holds_back_) engine_.now.note_given();  // where an error ended the walk, what it still held is never made
  }

  void launch_now(dataflow::LaunchOp& op, Tick tick, std::int32_t device, Touched touched) {
    scope_.bind(device);
    doing(engine_, op, device, [&] {
      engine_.streams.enter(tick.stream);
      if (giving_.is_used() && giving_.launch(op, {&op, tick, device}, touched)) [[unlikely]]
        return;
      check(call_launch(engine_.table, op, device, engine_.stream(tick.stream).handle), "cuLaunchKernel");
    });
  }

  void replay_now(dataflow::ReplayOp& op, Graph& graph, Tick tick, std::int32_t device, Touched touched) {
    doing(engine_, op, device, [&] {
      engine_.streams.enter(tick.stream);
      giving_.make_way(tick, touched);
      graph.launch(op, engine_.stream(tick.stream).handle);
    });
  }

  void stage_now(const HeldWork& work, Tick tick, Touched touched) {
    const dataflow::Pageable& memory = *dataflow::as_pageable(work.pageable);
    engine_.streams.enter(tick.stream);
    giving_.make_way(tick, touched);
    if (work.kind == HeldWork::Kind::upload) return engine_.staging.to_array(tick, work.array, memory);
    engine_.staging.from_array(tick, work.array, memory);
  }

  // In the stream's context.
  void put_fill(const nb::object& op, const dataflow::Pattern& pattern, const dataflow::Region& region,
                std::uint64_t base, StreamIndex stream, Touched touched) {
    if (!holds_back_) engine_.streams.enter(stream);
    const WorkOf of = work_of(op, {stream, next_count(stream)});
    dataflow::each_fill(pattern, region, base, [&](dataflow::FillBlock block) {
      block.offset += base;
      if (holds_back_) return hold(stream, {.kind = HeldWork::Kind::fill, .op = op, .fill = block}, touched);
      fill_now(of, block, touched);
    });
  }
  void put_copy(const nb::object& op, const Array& to, const Array& from, StreamIndex stream, Touched touched) {
    if (!holds_back_) engine_.streams.enter(stream);
    const WorkOf of = work_of(op, {stream, next_count(stream)});
    dataflow::each_block(to, from, [&](const dataflow::CopyBlock& block) {
      if (holds_back_) return hold(stream, {.kind = HeldWork::Kind::copy, .op = op, .block = block}, touched);
      copy_now(of, block, touched);
    });
  }

  // Beside the operation's work on the stream. The walk goes on where the driver refuses it: then there is no time.
  void put_point(Op& op, StreamIndex stream, const Point& point, bool is_behind) {
    if (!holds_back_) return take_point(stream, point, is_behind);
    hold({.kind = is_behind ? HeldKind::point_behind : HeldKind::point_before,
          .stream = stream,
          .count = next_count(stream),
          .work = {.op = object_of(op), .point = point}});
  }

  void note_progress(Op& op, StreamIndex stream) {
    doing(engine_, op, engine_.stream(stream).device, [&] { engine_.waits.note_progress(stream); });
  }
  // While calls are held back: one of them may be refused yet.
  void note_finished(Op& op) { finished_.push_back(object_of(op)); }

  void hold(StreamIndex stream, HeldWork work, Touched touched) {
    work.touched.assign(touched.begin(), touched.end());
    hold({.kind = HeldKind::work, .stream = stream, .count = next_count(stream), .work = std::move(work)});
  }
  std::uint64_t next_count(StreamIndex stream) const { return engine_.timeline.submitted(stream) + 1; }

  Engine& engine_;
  ContextScope scope_;
  Giving giving_;
  bool holds_back_ = false;

 private:
  WorkOf work_of(nb::handle op, Tick tick) const {
    return {dataflow::as_op(op), tick, engine_.stream(tick.stream).device};
  }
  void fill_now(const WorkOf& of, const dataflow::FillBlock& block, Touched touched) {
    if (!giving_.is_used() || !giving_.fill(of, touched, block))
      call_fill(engine_.table, block, engine_.stream(of.tick.stream).handle);
  }
  void copy_now(const WorkOf& of, const dataflow::CopyBlock& block, Touched touched) {
    if (!giving_.is_used() || !giving_.copy(of, touched, block))
      call_copy(engine_.table, block, engine_.stream(of.tick.stream).handle);
  }

  void take_point(StreamIndex stream, const Point& point, bool is_behind) {
    if (!recording) return;  // the trace has ended
    trace::Work& work = recording->recorder.work(point.work);
    (is_behind ? work.returned : work.called) = trace::now_ns();
    if (is_behind) recording->correlation.end();
    record_point(stream, point);
    if (!is_behind) recording->correlation.begin(point.work);
  }
  void record_point(StreamIndex stream, const Point& point) {
    if (!point.event) return;
    const StreamState& state = engine_.stream(stream);
    scope_.bind(state.device);
    const CUresult answer = engine_.now.record(point.event, state.on());
    if (answer != CUDA_SUCCESS) recording->timing.give_up(point.work);
  }

  // A mark or a wait was refused, and what it was for counts as ordered.
  [[gnu::cold]] void restore_order(const std::set<StreamIndex>& streams) {
    engine_.streams.lose_order(streams);
    try {
      engine_.streams.restore_order();
    } catch (const Refusal&) {  // whoever submits next tries again, and is told
    }
  }

  void put_mark(Op& op, StreamIndex stream, std::uint32_t slot) {
    doing(engine_, op, engine_.stream(stream).device, [&] { engine_.streams.put_mark(stream, slot); });
  }
  void wait_for_mark(Op& op, Tick tick, StreamIndex other, std::uint32_t slot, Touched touched) {
    const std::int32_t device = engine_.stream(tick.stream).device;
    doing(engine_, op, device, [&] { giving_.wait(other, slot, {&op, tick, device}, touched); });
  }

  // The work at the stream's end gets its mark now. When the call is made, the timeline counts all that is held back,
  // and a mark would speak for that, too.
  void hold(HeldCall call) {
    if (call.kind == HeldKind::work || call.kind == HeldKind::wait) {
      Op& op = *dataflow::as_op(call.work.op);
      doing(engine_, op, engine_.stream(call.stream).device, [&] { engine_.streams.enter(call.stream); });
    }
    engine_.now.note_held_back();
    held_.add(std::move(call));
  }
  void make(const HeldCall& call) {
    if (call.kind == HeldKind::point_before || call.kind == HeldKind::point_behind)
      return take_point(call.stream, call.work.point, call.kind == HeldKind::point_behind);
    const StreamState& state = engine_.stream(call.stream);
    doing(engine_, call.work.op, state.device, [&] {
      Op& op = *dataflow::as_op(call.work.op);
      if (call.kind == HeldKind::mark) return put_mark(op, call.stream, call.slot);
      if (call.kind == HeldKind::wait)
        return wait_for_mark(op, {call.stream, call.count}, call.other, call.slot, call.work.touched);
      scope_.bind(state.device);
      engine_.streams.enter(call.stream);
      const Tick tick{call.stream, call.count};
      const Touched touched = call.work.touched;
      switch (call.work.kind) {
        case HeldWork::Kind::launch:
          return launch_now(static_cast<dataflow::LaunchOp&>(op), tick, state.device, touched);
        case HeldWork::Kind::fill:
          return fill_now(work_of(call.work.op, tick), call.work.fill, touched);
        case HeldWork::Kind::copy:
          return copy_now(work_of(call.work.op, tick), call.work.block, touched);
        case HeldWork::Kind::upload:
        case HeldWork::Kind::download:
          return stage_now(call.work, tick, touched);
        case HeldWork::Kind::replay:
          return replay_now(static_cast<dataflow::ReplayOp&>(op), *call.work.graph, tick, state.device, touched);
      }
    });
  }

  dataflow::HeldCalls<HeldWork> held_;
  std::vector<nb::object> finished_;  // while calls are held back
  nb::object lost_;                   // the first error of those that were refused
};

}  // namespace aiocuda::driver
