// A sink that performs nothing: it writes down what the walk orders, counts what the walk asks, and pauses or refuses
// on demand. No engine and no driver is behind it.
//
// Always true: a result is kept by its operation, as it is when the engine performs the walk. A piece of work passes
// when the test says so.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "builder.hpp"
#include "dataflow/explain_sink.hpp"
#include "dataflow/walk.hpp"

namespace aiocuda::driver::tests {

class CountingSink {
 public:
  using Value = nb::handle;
  using StreamIndex = dataflow::StreamIndex;
  using Tick = dataflow::Tick;
  using Buffer = dataflow::Buffer;

  explicit CountingSink(std::uint32_t streams = 1) {
    for (std::uint32_t i = 0; i < streams; ++i) streams_.streams.push_back(timeline_.add_stream());
    seen_.resize(streams, std::vector<std::uint64_t>(streams, 0));
  }
  CountingSink(const CountingSink&) = delete;
  CountingSink& operator=(const CountingSink&) = delete;

  // --- what the walk ordered

  struct Step {
    std::string what;
    const Op* op;
    Tick at;
    std::vector<std::pair<const Buffer*, bool>> touched;  // (which, does it write there)
    std::vector<std::uint64_t> after;                     // how much of each stream it comes after

    bool is_after(const Step& other) const { return after[other.at.stream] >= other.at.count; }
  };
  const std::vector<Step>& steps() const { return steps_; }
  std::vector<const Op*> ordered() const {
    std::vector<const Op*> found;
    for (const Step& each : steps_) found.push_back(each.op);
    return found;
  }
  // How often the walk asked for something, or ordered it.
  std::size_t asked() const { return asked_; }
  std::size_t held_back = 0, made_held = 0;  // how often it was told of branches, and of their end
  std::size_t ordered_again = 0;             // how often the walk ordered what had been ordered

  // --- what the test demands

  std::set<const Op*> without_room{};  // their memory is not there: FullMemory
  std::set<const Op*> not_loaded{};    // their kernels are not: HostWait
  std::set<const Op*> refused{};       // their work is: a ValueError that says "refused"
  void pass(Tick tick) { timeline_.learn_complete(tick); }
  void pass_all() {
    for (const StreamIndex each : streams_.streams) pass({each, timeline_.submitted(each)});
  }

  // --- what a sink has

  dataflow::Timeline& timeline() { return timeline_; }
  dataflow::RangeHazards& hazards(Buffer& buffer) { return buffer.hazards; }
  dataflow::PolicyStreams& policy_streams(Op&, const dataflow::Policy&, std::int32_t, int) {
    return ++asked_, streams_;
  }
  dataflow::StreamId ask(const dataflow::Policy&, Op&, std::int32_t, const std::vector<Tick>&,
                         const dataflow::PolicyStreams&) {
    return 0;
  }
  void look(StreamIndex) { ++asked_; }
  bool is_peer(std::int32_t, std::int32_t) const { return true; }
  std::int32_t device_of(StreamIndex) const { return 0; }
  bool is_open(dataflow::StreamId) const { return true; }

  bool is_done(const Op& op) const { return ++asked_, op.is_done(); }
  bool is_failed(const Op& op) const { return op.state == dataflow::State::failed; }
  [[noreturn]] void raise_again(const Op& op) const { dataflow::ExplainSink::raise_stored(op); }
  void fail(Op& op, nb::handle error) { op.fail(error); }

  Value result(const Op& op) const { return op.outcome; }
  Value constant(nb::handle object) const { return object; }
  const Array* array(Value value) const { return dataflow::as_array(value); }
  nb::handle object(Value value) const { return value; }
  bool is_unknown(Value) const { return false; }

  bool is_full(StreamIndex stream, std::uint64_t most) { return ++asked_, timeline_.backlog(stream) >= most; }
  bool is_complete(Tick tick) { return ++asked_, timeline_.is_known_complete(tick); }
  void require_open(dataflow::Op&, std::int32_t) const {}
  void require_made(dataflow::ReplayOp&) const {}
  void require_loaded(dataflow::LaunchOp& op, std::int32_t) {
    ++asked_;
    if (not_loaded.contains(&op)) throw dataflow::HostWait{};
  }
  void require_unclaimed(const std::vector<dataflow::Use>&) { ++asked_; }
  void admit_others(const dataflow::Op&, const dataflow::Use&) {}
  void note_use(const dataflow::Use&, dataflow::Tick) {}
  void put_in_doubt(const dataflow::ForeignOp&, const std::vector<dataflow::Use>&) {}
  void hold_back() { ++held_back; }
  void make_held_calls() { ++made_held; }
  void make_held_calls_now() {}

  void mark(Op&, StreamIndex stream, std::uint32_t slot) { marked_[{stream, slot}] = now_on(stream); }
  void wait(Op&, StreamIndex stream, StreamIndex other, std::uint32_t slot) {
    const std::vector<std::uint64_t>& mark = marked_.at({other, slot});
    for (std::size_t i = 0; i < mark.size(); ++i) seen_[stream][i] = std::max(seen_[stream][i], mark[i]);
  }

  void launch(dataflow::LaunchOp& op, StreamIndex stream, std::int32_t) {
    std::vector<std::pair<const Buffer*, bool>> touched;
    for (std::uint32_t i = 0; i < op.bound; ++i) {
      const Op* producer = dataflow::as_op(op.arguments[i].object);
      const Array* array = dataflow::as_array(producer ? nb::handle(producer->outcome) : op.arguments[i].object);
      if (array) touched.emplace_back(array->buffer.get(), op.signature.params[i].writes);
    }
    note("launch", op, stream, std::move(touched));
  }
  Value create(dataflow::CreateOp& op, StreamIndex stream, std::int32_t device) {
    ++asked_;
    if (without_room.contains(&op)) throw dataflow::FullMemory{device, op.size_bytes, 0};
    const Value made = make_array(op.size_bytes, device, op.spec.dtype, op.shape);
    note("create", op, stream, {{dataflow::as_array(made)->buffer.get(), true}});
    return made;
  }
  Value create_host(dataflow::CreateOp& op, std::int32_t device) {
    ++asked_;
    if (without_room.contains(&op)) throw dataflow::FullMemory{device, op.size_bytes, 0};
    return make_array(op.size_bytes, dataflow::host_ordinal, op.spec.dtype, op.shape);
  }
  Value staging(Op&, const Array& source, std::int32_t device, StreamIndex) {
    staged_ = make<Array>(
        Array{BufferRef(std::make_unique<Buffer>(source.size_bytes(), device)), 0, device, source.dtype, source.shape});
    return staged_;
  }
  static constexpr bool stages_copies = false;
  Value page_locked(dataflow::CopyOp&, const dataflow::Pageable& memory, std::int32_t) {
    return make_array(memory.host.size_bytes(), dataflow::host_ordinal, memory.dtype, memory.shape);
  }
  void copy(dataflow::CopyOp& op, const Array& to, const Array& from, StreamIndex stream) {
    note("copy", op, stream, {{to.buffer.get(), true}, {from.buffer.get(), false}});
  }
  void copy_of_unknown(dataflow::CopyOp&) {}
  void fill(dataflow::FillOp& op, const Array& array, const Array*, StreamIndex stream) {
    note("fill", op, stream, {{array.buffer.get(), true}});
  }
  void fill_of_unknown(dataflow::FillOp&) {}
  std::optional<Value> foreign(dataflow::ForeignOp& op, const std::vector<Value>&, StreamIndex stream, std::int32_t) {
    note("foreign", op, stream, {});
    return std::nullopt;
  }
  void replay(dataflow::ReplayOp& op, const dataflow::Replay&, StreamIndex stream, std::int32_t) {
    note("replay", op, stream, {});
  }
  std::optional<Value> call(dataflow::CallOp& op, Value input) {
    ++asked_;
    scratch_ = op.function(input);
    if (op.mode == dataflow::CallMode::inspect) return input;
    if (!dataflow::as_op(scratch_)) return scratch_;
    op.go_on_with(std::move(scratch_));
    return std::nullopt;
  }
  // Functions of complete values are called outside of walks, as the engine does.
  std::optional<Value> map(dataflow::CallOp&, Value) { return ++asked_, std::nullopt; }

  Value tuple(const std::vector<Value>& values) {
    scratch_ = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
      PyTuple_SET_ITEM(scratch_.ptr(), static_cast<Py_ssize_t>(i), values[i].inc_ref().ptr());
    return scratch_;
  }
  Value gather(dataflow::GatherOp&, const std::vector<Value>& values) { return tuple(values); }
  Value item(dataflow::PickOp& op, Value from) {
    scratch_ = dataflow::ExplainSink::item_of(from, op.index);
    return scratch_;
  }

  void ran(Op& op, Tick now) {
    op.ready.clear();
    op.ready.push_back(now);
  }
  const Few<Tick>& ready(const Op& op) const { return op.ready; }
  void add_ready(Op& op, Tick tick) { op.add_ready(tick); }
  void finish(Op& op, Value value) {
    ++asked_;
    op.finish(nb::borrow(value));
  }

 private:
  Value make_array(std::uint64_t size_bytes, std::int32_t device, dataflow::DType dtype,
                   const std::vector<std::int64_t>& shape) {
    scratch_ = make<Array>(Array{BufferRef(std::make_unique<Buffer>(size_bytes, device)), 0, device, dtype, shape});
    return scratch_;
  }
  // How much of each stream comes before the next work on this one.
  std::vector<std::uint64_t> now_on(StreamIndex stream) const {
    std::vector<std::uint64_t> now = seen_[stream];
    now[stream] = timeline_.submitted(stream);
    return now;
  }
  void note(const char* what, const Op& op, StreamIndex stream, std::vector<std::pair<const Buffer*, bool>> touched) {
    ++asked_;
    if (refused.contains(&op)) dataflow::raise(PyExc_ValueError, "refused");
    ordered_again += op.is_done();
    steps_.push_back({what, &op, {stream, timeline_.submitted(stream) + 1}, std::move(touched), now_on(stream)});
  }

  dataflow::Timeline timeline_;
  dataflow::PolicyStreams streams_;
  std::vector<std::vector<std::uint64_t>> seen_;  // by stream: how much of each it is ordered after
  std::map<std::pair<StreamIndex, std::uint32_t>, std::vector<std::uint64_t>> marked_;
  std::vector<Step> steps_;
  mutable std::size_t asked_ = 0;
  nb::object scratch_, staged_;  // keep values that nothing else holds until they are finished
};

// An execution without an engine: a root, and how far its walk has come.
class Walked {
 public:
  using Walk = dataflow::Walk<CountingSink>;

  Walked(CountingSink& sink, nb::object root, nb::object placement)
      : sink_(sink), root_(std::move(root)), placement_(std::move(placement)) {}

  // Walks once: true where the root has its result.
  bool step() {
    const std::uint64_t before = dataflow::Path::visits();
    const std::size_t asked_before = sink_.asked();
    Walk walk(sink_, of<Placement>(placement_), scratch_, path);
    auto count = [&] {
      visits = dataflow::Path::visits() - before;
      asked = sink_.asked() - asked_before;
      waits = walk.waits();
      is_full = walk.is_full();
      full_memory = walk.full_memory();
    };
    try {
      const bool is_done = walk.run(root_);
      count();
      return is_done;
    } catch (...) {
      count();
      throw;
    }
  }
  // Calls the functions that are due.
  void run_due() {
    std::vector<nb::object> due;
    for (const dataflow::Path::Due& each : path.due) due.push_back(nb::find(*each.frame->op));
    for (const nb::object& each : due) {
      auto& op = of<dataflow::CallOp>(each);
      const Op* input = dataflow::as_op(op.input);
      op.finish(op.function(input ? input->outcome : op.input));
    }
  }

  dataflow::Path path;
  // Of the last step.
  std::uint64_t visits = 0;
  std::size_t asked = 0;
  std::vector<dataflow::Tick> waits;
  bool is_full = false;
  std::optional<dataflow::FullMemory> full_memory;

 private:
  CountingSink& sink_;
  nb::object root_, placement_;
  dataflow::Scratch<nb::handle> scratch_;
};

}  // namespace aiocuda::driver::tests
