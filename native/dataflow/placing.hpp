// Placing: the stream of an operation, its waits there, and what it leaves behind for later operations.
//
// Always true: an operation that is committed is ordered after every earlier one that touched the same bytes,
// where one of the two wrote them.
#pragma once
#include <string>
#include <vector>

#include "operation.hpp"
#include "timeline.hpp"

namespace aiocuda::dataflow {

// Thrown where a stream holds as much as it may: the host must wait for this first.
struct Full {
  Tick until;
  bool is_room = true;  // of the stream; else of the driver's queues
};

// Thrown where arrays would hold more than they may: the host must wait until some of them are gone.
struct FullMemory {
  std::int32_t device;
  std::uint64_t asked_bytes, most_bytes;
};

// Thrown where work on the host must end first. The sink knows which; nothing of the operation has been done.
struct HostWait {};

[[noreturn, gnu::cold]] inline void raise_stream_closed(StreamId stream) {
  raise(error_types.closed,
        "stream " + std::to_string(slot_of(stream)) + " was closed before this use of it; use an open stream");
}

// Bytes of a buffer that an operation reads or writes.
struct Use {
  Buffer* buffer;
  Span span;
  bool writes;
  Loan* tensor = nullptr;  // of a framework's array: its stream comes before, and after
};

[[gnu::noinline]] inline void add_pieces(const Array& array, bool writes, std::vector<Use>& uses) {
  array.each_piece([&](Span piece) { uses.push_back({array.buffer.get(), piece, writes, array.tensor()}); });
}
inline void add_uses(const Array& array, bool writes, std::vector<Use>& uses) {
  if (!array.is_contiguous()) return add_pieces(array, writes, uses);
  uses.push_back({array.buffer.get(), {array.offset, array.offset + array.size_bytes()}, writes, array.tensor()});
}

// An operation that `on` put on a device, and that works on another.
inline void require_put(const Op& op, std::int32_t device) {
  const std::int32_t put = op.device_put();
  if (put == unknown_ordinal || put == device) return;
  const std::string there = std::to_string(put);
  raise(error_types.device_mismatch, "on(" + there + "): " + nb::cast<std::string>(nb::find(op).attr("_title")) +
                                         " works on device " + std::to_string(device) +
                                         ", where its arrays are; bring them over with .to(" + there +
                                         "), or leave on() out");
}

template <class Sink>
class Placing {
 public:
  Placing(Sink& sink, const Placement& placement, std::vector<Use>& use_room, std::vector<Tick>& need_room)
      : uses(use_room), sink_(sink), placement_(&placement), needs_(need_room) {}

  void put_in_force(const Placement& placement) { placement_ = &placement; }

  std::vector<Use>& uses;  // of the operation that is placed now

  void add(const Array& array, bool writes) { add_uses(array, writes, uses); }

  // After `uses` is known: what it must be ordered after says where it is best put.
  StreamIndex choose(Op& op, std::int32_t device) {
    const Placement* put = op.where_put();
    if (put && put->stream != no_stream) return open(put->stream, device);
    require_put(op, device);
    return choose_without(op, device, put && put->policy ? put->policy : nullptr);
  }

  // Where a policy of ours is to choose, its first stream: work that shares what only a stream keeps in order.
  StreamIndex choose_first(Op& op, std::int32_t device) {
    const Policy& policy = placement_->policy_or_default();
    const bool is_forced = placement_->stream != no_stream && placement_->device == device;
    if (op.where_put() || is_forced || policy.asks()) return choose(op, device);
    return sink_.policy_streams(op, policy, device, placement_->stream_priority(policy)).streams.front();
  }

  // On the way to where it was put, an operation may work on another device first.
  StreamIndex choose_on_way(Op& op, std::int32_t device) {
    return op.device_put() == device ? choose(op, device) : choose_without(op, device, nullptr);
  }

  StreamIndex choose_without(Op& op, std::int32_t device, const Policy* put) {
    if (!put && placement_->stream != no_stream && placement_->device == device)
      return open(placement_->stream, device);
    const Policy& policy = put ? *put : placement_->policy_or_default();
    PolicyStreams& policy_streams = sink_.policy_streams(op, policy, device, placement_->stream_priority(policy));
    if (policy.goes_on() && !uses.empty()) {  // in a chain the first need says it all
      const Hazard* const first = sink_.hazards(*uses.front().buffer).whole();
      if (first && sink_.timeline().is_tail(first->written) && policy_streams.contain(first->written.stream))
        return first->written.stream;
    }
    return choose_by_needs(op, device, policy, policy_streams);
  }
  [[gnu::noinline]] StreamIndex choose_by_needs(Op& op, std::int32_t device, const Policy& policy,
                                                PolicyStreams& policy_streams) {
    needs_.clear();
    for (const Use& use : uses)
      sink_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span) {
        hazard.each_before(use.writes, [&](Tick tick) { needs_.push_back(tick); });
      });
    if (policy.looks_at_progress())
      for (const StreamIndex stream : policy_streams.streams) sink_.look(stream);
    if (!policy.asks()) [[likely]]
      return policy.choose(sink_.timeline(), needs_, policy_streams);
    return ask(op, device, policy, policy_streams);
  }
  [[gnu::noinline]] StreamIndex ask(Op& op, std::int32_t device, const Policy& policy, PolicyStreams& policy_streams) {
    const StreamId asked = [&] {
      const InForce in_force(placement_of(op, *placement_));
      return sink_.ask(policy, op, device, needs_, policy_streams);
    }();
    if (sink_.is_open(asked) && sink_.device_of(slot_of(asked)) != device)
      raise(error_types.device_mismatch, "the policy put an operation on device " + std::to_string(device) +
                                             " on a stream of device " +
                                             std::to_string(sink_.device_of(slot_of(asked))) +
                                             "; return one of the candidates, or another stream of "
                                             "device " +
                                             std::to_string(device));
    return open(asked, device);
  }

  StreamIndex open(StreamId stream, std::int32_t device) {
    if (!sink_.is_open(stream)) raise_stream_closed(stream);
    const std::int32_t actual = sink_.device_of(slot_of(stream));
    if (actual != device)
      raise(error_types.device_mismatch, "an operation on device " + std::to_string(device) +
                                             " was put on a stream of device " + std::to_string(actual) +
                                             "; choose a stream of device " + std::to_string(device));
    return slot_of(stream);
  }

  // Places the waits of `uses`, which are the operation's; before that, a mark behind what the stream holds, where
  // others may still want to wait for just that. An operation of several steps that has begun goes on where there is no
  // room: it would begin again, and again.
  void order(Op& op, StreamIndex stream, bool has_begun = false) {
    Timeline& timeline = sink_.timeline();
    Waits waits{sink_, op};
    const std::uint32_t most = placement_->max_in_flight;
    if (!has_begun) sink_.require_unclaimed(uses);
    if (!has_begun && sink_.is_full(stream, most)) throw Full{{stream, timeline.submitted(stream) - most / 2}};
    if (timeline.is_tail_wanted(stream, 0)) mark_wanted_tail(stream, waits);
    for (const Use& use : uses)
      if (use.tensor || use.buffer->is_watched()) [[unlikely]]
        sink_.admit_others(op, use);
    if constexpr (requires { sink_.note_needs(uses); }) sink_.note_needs(uses);
    for (const Use& use : uses)
      sink_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span) {
        timeline.order(stream, hazard, use.writes, waits);
      });
  }

  template <class Waits>
  [[gnu::noinline]] void mark_wanted_tail(StreamIndex stream, Waits& waits) {
    Timeline& timeline = sink_.timeline();
    const Tick tail{stream, timeline.submitted(stream)};
    std::uint32_t overwritten = 0;
    for (const Use& use : uses)
      if (use.writes)
        sink_.hazards(*use.buffer).each(use.span, [&](const Hazard& hazard, Span segment) {
          overwritten += hazard.written.stream == tail.stream && hazard.written.count == tail.count &&
                         use.span.begin <= segment.begin && segment.end <= use.span.end;
        });
    if (timeline.is_tail_wanted(stream, overwritten)) timeline.mark_end(stream, waits);
  }

  void commit(Op& op, StreamIndex stream, bool is_shared) { sink_.ran(op, occupy(stream, is_shared)); }
  // The same for work of which a call was refused: those before it are on the stream all the same.
  Tick occupy(StreamIndex stream, bool is_shared) {
    std::uint32_t outputs = 0;
    for (const Use& use : uses) outputs += use.writes;
    const Tick now = sink_.timeline().advance(stream, outputs, is_shared);
    for (const Use& use : uses) {
      RangeHazards& hazards = sink_.hazards(*use.buffer);
      hazards.commit(use.span, use.writes, now);
      hazards.forget_passed(sink_.timeline());
      if (use.tensor || use.buffer->is_watched()) [[unlikely]]
        sink_.note_use(use, now);
    }
    return now;
  }

  // A result is there when what it was made of is. It goes to a callback, or to several: who else will use it
  // is not known.
  void inherit(Op& op, nb::handle from) {
    if (const Op* producer = as_op(from)) {
      if constexpr (requires { sink_.inherit_all(op, *producer); }) sink_.inherit_all(op, *producer);
      for (const Tick tick : sink_.ready(*producer)) inherit(op, tick);
    } else if (const Array* array = as_array(from); array && array->buffer) {
      sink_.hazards(*array->buffer).each(array->span(), [&](const Hazard& hazard, Span) {
        hazard.each_before(false, [&](Tick tick) { inherit(op, tick); });
      });
    }
  }
  void inherit(Op& op, Tick tick) {
    sink_.add_ready(op, tick);
    sink_.timeline().share(tick);
  }

  // Behind what the stream holds, where others may still want to wait for just that, before the operation comes there.
  void mark(Op& op, StreamIndex stream) {
    Waits waits{sink_, op};
    if (sink_.timeline().is_tail_wanted(stream, 0)) sink_.timeline().mark_end(stream, waits);
  }

  // A new array's memory, there from here on in the stream; `uses` stays as it is.
  void commit_new(Op& op, const Array& array, StreamIndex stream, bool is_shared) {
    const Tick now = sink_.timeline().advance(stream, 1, is_shared);
    sink_.hazards(*array.buffer).commit(array.span(), true, now);
    sink_.ran(op, now);
  }

 private:
  // The timeline's waits and marks are made for an operation. If one fails, the operation fails.
  struct Waits {
    Sink& sink;
    Op& op;
    void mark(StreamIndex stream, std::uint32_t slot) { sink.mark(op, stream, slot); }
    void wait(StreamIndex stream, StreamIndex other, std::uint32_t slot) { sink.wait(op, stream, other, slot); }
  };

  Sink& sink_;
  const Placement* placement_;  // in force for the operation that is placed now
  std::vector<Tick>& needs_;
};

}  // namespace aiocuda::dataflow
