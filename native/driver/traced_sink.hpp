// The sink of a walk that is traced: it performs what SubmitSink performs, in the same order, and records it.
//
// Always true: what is decided does not depend on the trace. Around each piece of work on a stream, and nothing else,
// lie two points. A walk that is not traced has none of this in its way.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "recording.hpp"
#include "submit_sink.hpp"

namespace aiocuda::driver {

class TracedSink : public SubmitSink {
 private:
  static trace::Number name(std::string_view text) { return recording ? recording->recorder.name(text) : 0; }
  trace::Work copy_between(std::int32_t from, std::int32_t to, std::uint64_t size_bytes, StreamIndex stream,
                           trace::Number brought_by) {
    const bool is_from_host = from == dataflow::host_ordinal, is_to_host = to == dataflow::host_ordinal;
    const char* const text = is_from_host && is_to_host ? "copy within the host"
                             : is_from_host             ? "copy to device"
                             : is_to_host               ? "copy to host"
                             : from == to               ? "copy"
                                                        : "copy between devices";
    return {.device = device_of(stream),
            .kind = trace::WorkKind::copy,
            .name = name(text),
            .brought_by = brought_by,
            .size_bytes = size_bytes};
  }

  // The last copy that wrote some of an array, if nothing has written there since.
  trace::Number brought_by(const Array& array) {
    if (!recording) return trace::none;
    const trace::Recorder& recorder = recording->recorder;
    trace::Number last = trace::none;
    hazards(*array.buffer).each(array.span(), [&](const dataflow::Hazard& hazard, dataflow::Span) {
      hazard.each_before(false, [&](Tick tick) {
        const trace::Number work = recorder.find(tick);
        if (work != trace::none && (last == trace::none || work > last)) last = work;
      });
    });
    if (last == trace::none || recorder.work(last).kind != trace::WorkKind::copy) return trace::none;
    return recorder.work(last).is_of_file ? trace::none : last;  // what a file has was nowhere before
  }

  trace::Number begin(const Op& op, trace::Work work) {
    work.place = recording->place(op.origin);
    if (work.device >= 0) work.held_bytes = engine_.memory.account(work.device).used_bytes;
    const trace::Number number = recording->recorder.begin_work(work, needs_, &op.origin);
    needs_.clear();
    return number;
  }
  void end(Tick now) {
    if (last_ == trace::none || !recording) return;
    const trace::Number ended = std::exchange(last_, trace::none);
    recording->recorder.end_work(ended, now);
  }

  // `is_work`: the stream gets some.
  template <class F>
  auto record(Op& op, const trace::Work& work, StreamIndex stream, bool is_work, F&& perform) {
    if (!recording) return perform();
    const trace::Number number = begin(op, work);
    const Recording* const begun = recording;
    Point before{.work = number}, behind{.work = number};
    if (is_work) {
      scope_.bind(device_of(stream));
      const Timing::Events events = recording->timing.begin(number, device_of(stream));
      before.event = events.before, behind.event = events.behind;
    }
    put_point(op, stream, before, false);
    last_ = trace::none;
    try {
      if constexpr (std::is_void_v<decltype(perform())>) {
        perform();
        finish_record(op, stream, begun, number, behind);
      } else {
        const auto value = perform();
        finish_record(op, stream, begun, number, behind);
        return value;
      }
    } catch (const nb::python_error&) {
      end_refused(begun, number);
      last_ = number;  // where its place in the stream is kept
      throw;
    } catch (const Refusal&) {
      end_refused(begun, number);
      throw;
    } catch (...) {
      withdraw(begun, number, op);
      throw;
    }
  }
  static void end_refused(const Recording* begun, trace::Number number) {
    if (recording != begun) return;
    trace::Work& work = recording->recorder.work(number);
    work.state = trace::WorkState::refused;
    work.returned = trace::now_ns();
    recording->timing.give_up(number);
  }
  // The walk stops, because something must come first.
  static void withdraw(const Recording* begun, trace::Number number, const Op& op) {
    if (recording != begun) return;
    recording->recorder.withdraw(number, &op.origin);
    recording->timing.give_up(number);
  }
  void finish_record(Op& op, StreamIndex stream, const Recording* begun, trace::Number number, const Point& behind) {
    if (recording != begun) return;
    put_point(op, stream, behind, true);
    if (holds_back_) held_work_.emplace_back(object_of(op), number);
    last_ = number;
  }

  template <class F>
  auto record_on_host(Op& op, const trace::Work& work, F&& perform) {
    if (!recording) return perform();
    const trace::Number number = begin(op, work);
    const Recording* const begun = recording;
    try {
      const auto value = perform();
      if (recording == begun) recording->recorder.work(number).returned = trace::now_ns();
      return value;
    } catch (const nb::python_error&) {
      end_refused(begun, number);
      throw;
    } catch (...) {
      withdraw(begun, number, op);
      throw;
    }
  }

 public:
  using SubmitSink::SubmitSink;

  void note_needs(const std::vector<dataflow::Use>& uses) {
    needs_.clear();
    for (const dataflow::Use& use : uses)
      hazards(*use.buffer).each(use.span, [&](const dataflow::Hazard& hazard, dataflow::Span) {
        hazard.each_before(use.writes, [&](Tick tick) { needs_.push_back(tick); });
      });
  }

  // The walk is a template: it calls these of the sink that it was made for.
  // NOLINTBEGIN(bugprone-derived-method-shadowing-base-method)
  void launch(dataflow::LaunchOp& op, StreamIndex stream, std::int32_t device) {
    record(op, {.device = device, .kind = trace::WorkKind::launch, .name = name(op.signature.kernel)}, stream,
           !op.shape.empty, [&] { SubmitSink::launch(op, stream, device); });
  }
  Value create(dataflow::CreateOp& op, StreamIndex stream, std::int32_t device) {
    const bool is_filled = op.pattern.size != 0 && op.size_bytes != 0;
    return record(op,
                  {.device = device,
                   .kind = trace::WorkKind::allocate,
                   .name = name(is_filled ? "allocate and fill" : "allocate"),
                   .size_bytes = op.size_bytes},
                  stream, is_filled, [&] { return SubmitSink::create(op, stream, device); });
  }
  Value create_host(dataflow::CreateOp& op, std::int32_t device) {
    return record_on_host(
        op,
        {.kind = trace::WorkKind::allocate, .name = name("allocate page-locked memory"), .size_bytes = op.size_bytes},
        [&] { return SubmitSink::create_host(op, device); });
  }
  void copy(dataflow::CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    const bool is_work = to.size_bytes() != 0 && !dataflow::is_same_place(to, from);
    record(op, copy_between(from.device, to.device, to.size_bytes(), stream, brought_by(from)), stream, is_work,
           [&] { SubmitSink::copy(op, to, from, stream); });
  }
  void upload(dataflow::CopyOp& op, const Array& to, StreamIndex stream) {
    const dataflow::Pageable& source = *dataflow::as_pageable(op.source);
    const bool is_of_memory = recording && !source.host.file();
    trace::Work work = copy_between(dataflow::host_ordinal, to.device, to.size_bytes(), stream,
                                    is_of_memory ? recording->written_by(source.owner) : trace::none);
    work.is_of_file = source.host.file() != nullptr;
    record(op, work, stream, !source.is_nothing(), [&] { SubmitSink::upload(op, to, stream); });
  }
  void download(dataflow::CopyOp& op, const Array& from, StreamIndex stream) {
    const dataflow::Pageable& destination = *dataflow::as_pageable(op.destination);
    const bool is_of_file = destination.host.file() != nullptr;
    trace::Work work = copy_between(from.device, dataflow::host_ordinal, from.size_bytes(), stream,
                                    is_of_file ? trace::none : brought_by(from));
    work.is_of_file = is_of_file;
    record(op, work, stream, !destination.is_nothing(), [&] { SubmitSink::download(op, from, stream); });
    if (recording && last_ != trace::none && !is_of_file) recording->note_written(destination.owner, last_);
  }
  void fill(dataflow::FillOp& op, const Array& array, const Array* way, StreamIndex stream) {
    record(op,
           {.device = device_of(stream),
            .kind = trace::WorkKind::fill,
            .name = name("fill"),
            .size_bytes = array.size_bytes()},
           stream, array.size_bytes() != 0, [&] { SubmitSink::fill(op, array, way, stream); });
  }
  void replay(dataflow::ReplayOp& op, const dataflow::Replay& replay, StreamIndex stream, std::int32_t device) {
    const std::string_view called = op.is_loop ? std::string_view(op.plan->loop) : "graph";
    record(op, {.device = device, .kind = trace::WorkKind::graph, .name = name(called)}, stream, true,
           [&] { SubmitSink::replay(op, replay, stream, device); });
  }
  std::optional<Value> foreign(dataflow::ForeignOp& op, const std::vector<Value>& values, StreamIndex stream,
                               std::int32_t device) {
    return record(op, {.device = device, .kind = trace::WorkKind::call, .name = name("call")}, stream, true,
                  [&] { return SubmitSink::foreign(op, values, stream, device); });
  }
  std::optional<Value> call(dataflow::CallOp& op, Value input) {
    needs_.assign(op.ready.begin(), op.ready.end());
    const char* const plain = op.mode == dataflow::CallMode::inspect ? "inspect()" : "then()";
    return record_on_host(op, {.kind = trace::WorkKind::function, .name = name(op.title.empty() ? plain : op.title)},
                          [&] { return SubmitSink::call(op, input); });
  }

  void ran(Op& op, Tick now) {
    SubmitSink::ran(op, now);
    end(now);
  }
  void make_held_calls() {
    SubmitSink::make_held_calls();
    for (const auto& [object, work] : std::exchange(held_work_, {}))
      if (recording && dataflow::as_op(object)->state == dataflow::State::failed)
        recording->recorder.work(work).state = trace::WorkState::refused;
  }
  // NOLINTEND(bugprone-derived-method-shadowing-base-method)

 private:
  std::vector<Tick> needs_;  // of the next work
  std::vector<std::pair<nb::object, trace::Number>> held_work_;
  trace::Number last_ = trace::none;  // work whose submission is yet to be counted
};

}  // namespace aiocuda::driver
