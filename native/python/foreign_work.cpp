// Work of other libraries as operations that were submitted: see foreign_work.hpp.
#include "foreign_work.hpp"

#include <algorithm>

#include "../dataflow/access.hpp"
#include "../driver/execution.hpp"
#include "../driver/refused.hpp"
#include "places.hpp"
#include "process.hpp"

namespace aiocuda {
namespace nb = nanobind;
namespace {
using dataflow::Array;
using dataflow::BufferRef;
using dataflow::Op;
using driver::Engine;
using driver::InCall;

// The operation has been submitted, with this result; it is complete when the tick that `behind` gives has passed.
template <class F>
void finish_behind(nb::handle_t<Op> object, nb::object result, std::int32_t device, F&& behind) {
  Engine& engine = process_engine();
  const Engine::Submission submission(engine);
  Op& op = *nb::inst_ptr<Op>(object);
  op.add_ready(driver::doing(engine, op, device, [&] { return behind(engine); }));
  op.finish(std::move(result));
  driver::doing(engine, op, device, [&] { driver::mark(engine, op, op.ready); });
}

}  // namespace

void come_after(std::uintptr_t theirs, const Array& state) {
  Engine& engine = process_engine();
  const InCall& call = *InCall::current();
  const auto stream = reinterpret_cast<CUstream>(theirs);
  auto words = [] { return std::string("ordering a function's work after its framework's"); };
  driver::doing(engine, words, call.device, [&] {
    if (!call.is_captured) {
      const std::pair both(call.stream, stream);
      if (std::ranges::find(*call.followed, both) != call.followed->end()) return;
      engine.streams.follow(call.stream, stream);
      call.followed->push_back(both);
      return;
    }
    state.buffer->hazards.commit_of_others(state.span(), engine.relays.behind(stream, call.device));
  });
}

void bind_foreign_work(nb::module_& module) {
  // A point of somebody else's stream, recorded now.
  module.def(
      "finish_behind_stream", [](nb::handle_t<Op> op, nb::object result, std::uintptr_t theirs, std::int32_t device) {
        finish_behind(op, std::move(result), device,
                      [&](Engine& engine) { return engine.relays.behind(reinterpret_cast<CUstream>(theirs), device); });
      });
  // An event that was recorded, somebody else's or ours.
  module.def(
      "finish_behind_event", [](nb::handle_t<Op> op, nb::object result, std::uintptr_t event, std::int32_t device) {
        finish_behind(op, std::move(result), device,
                      [&](Engine& engine) { return engine.relays.behind(reinterpret_cast<CUevent>(event), device); });
      });
  // A relay that the owner of memory has ordered behind his work.
  module.def("finish_behind_relay", [](nb::handle_t<Op> op, nb::object result, dataflow::StreamId relay,
                                       std::int32_t device) {
    finish_behind(op, std::move(result), device, [&](Engine& engine) { return engine.streams.pass(index_of(relay)); });
  });
  // All that was submitted here with an array's memory, and what its borrowers have enqueued. Pageable memory has none.
  module.def("finish_behind_array", [](nb::handle_t<Op> op, const Array& array) {
    dataflow::check_usable(array, false, [] { return std::string("done"); });
    const std::int32_t device = array.is_host() ? process_engine().stream(0).device : array.device;
    finish_behind(op, nb::find(array), device, [&](Engine& engine) {
      const driver::StreamIndex relay = engine.relays.unnamed(device);
      driver::ContextScope scope(engine);
      scope.bind(device);
      engine.lending.admit(*array.buffer, array.span(), true);
      array.each_piece([&](dataflow::Span piece) { engine.streams.order(relay, *array.buffer, piece); });
      return engine.streams.pass(relay);
    });
  });
  // What a framework's function keeps. Nothing is there: it is for the order of its calls alone.
  module.def("make_state", [](nb::handle type, dataflow::DType byte) {
    auto buffer = std::make_unique<dataflow::Buffer>(1);
    buffer->address = 1;  // a graph gives no memory to what has an address
    return dataflow::make_array(type, Array{BufferRef(std::move(buffer)), 0, dataflow::host_ordinal, byte, {1}});
  });
}

}  // namespace aiocuda
