// Graphs over a driver that counts and refuses: how they are made of a plan, and what launches of them set.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "dataflow/graph_recording.hpp"
#include "driver/drive.hpp"
#include "driver/graph.hpp"
#include "driver/refused.hpp"
#include "whole_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
namespace nb = nanobind;
namespace dataflow = aiocuda::dataflow;

namespace {

dataflow::GraphSink::Services house_of(WholeEngine& engine) {
  dataflow::GraphSink::Services services;
  services.allocate = [&engine](dataflow::Buffer& buffer, Op*) {
    doing(engine.engine, std::string("a graph's memory"), buffer.device,
          [&] { engine.engine.memory.allocate(buffer, engine.engine.devices.at(buffer.device).default_stream); });
  };
  services.object_of = [](Array&& array) { return make<Array>(std::move(array)); };
  services.is_peer = [&engine](std::int32_t a, std::int32_t b) { return engine.engine.is_peer(a, b); };
  services.lift = [](nb::handle value) { return nb::borrow(value); };
  return services;
}

// Fills an input, copies it to an array of the graph's own, and fills that: its result.
nb::object make_graph(WholeEngine& engine, const nb::object& input, bool makes = true) {
  dataflow::GraphSink planner(house_of(engine), "here");
  planner.add_input("x", input);
  const nb::object copied = engine.copy(engine.create(64, 0), engine.fill(input));
  const nb::object result = record_into(engine.engine, planner, engine.fill(copied), of<Placement>(engine.placement));
  Engine::Submission submission(engine.engine);
  dataflow::GraphPlan plan = planner.finish({dataflow::as_array(result)}, result);
  return doing(engine.engine, std::string("making a graph"), 0, [&] {
    const auto graph = std::make_shared<Graph>(engine.engine, std::move(plan));
    if (makes) graph->make();
    return make<GraphObject>(GraphObject{graph});
  });
}

nb::object launch_of(const nb::object& graph, const nb::object& input) {
  nb::object object = make<dataflow::ReplayOp>();
  auto& op = of<dataflow::ReplayOp>(object);
  op.graph = graph;
  op.plan = &of<GraphObject>(graph).graph->plan;
  op.generation = op.plan->generation;
  op.tied_device = op.plan->device;
  op.bind(false, 0, input);
  dataflow::Replay(*op.plan, op).bind(op.bindings[0], *dataflow::as_array(input));
  return object;
}

// The addresses that the last launch of a graph filled.
std::vector<std::uint64_t> filled_last(const FakeDriver& driver) {
  std::vector<std::uint64_t> found;
  for (const FakeDriver::Work& each : driver.work())
    if (each.function == Function::cuGraphLaunch) found = each.arguments;
  return found;
}

}  // namespace

TEST_CASE("nobody submits while a graph is recorded: walks of two threads would not end as they began") {
  WholeEngine engine;
  engine.arrays = {engine.array(64), engine.array(64)};
  const nb::object other = engine.fill(engine.arrays[1]);
  bool may_submit = true;
  std::atomic<bool> has_begun = false;
  std::optional<Raised> raised;
  std::thread submits;
  const nb::object function = nb::cpp_function([&](nb::object value) {
    CHECK(engine.engine.depth == 1);
    {
      const nb::gil_scoped_release release;
      std::thread([&] {
        may_submit = engine.engine.submitting.try_lock();
        if (may_submit) engine.engine.submitting.unlock();
      }).join();
      submits = std::thread([&] {
        const nb::gil_scoped_acquire acquire;
        has_begun = true;
        has_begun.notify_all();
        raised = engine.submit(other);
      });
      has_begun.wait(false);
    }
    CHECK(op_of(other).state == dataflow::State::pending);
    return value;
  });
  dataflow::GraphSink planner(house_of(engine), "here");
  planner.add_input("x", engine.arrays[0]);
  const nb::object root = engine.then(engine.fill(engine.arrays[0]), function);
  record_into(engine.engine, planner, root, of<Placement>(engine.placement));
  {
    const nb::gil_scoped_release release;
    submits.join();
  }
  CHECK_FALSE(may_submit);
  CHECK_FALSE(raised);
  CHECK(op_of(other).is_done());
}

TEST_CASE("a launch sets the nodes whose memory is another than before, and no others") {
  WholeEngine engine;
  engine.arrays = {engine.array(64), engine.array(64)};
  const nb::object graph = make_graph(engine, engine.arrays[0]);
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) >= 1);
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[0])));
  CHECK(engine.driver.count(Function::cuGraphExecMemsetNodeSetParams) == 0);
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[1])));
  CHECK(engine.driver.count(Function::cuGraphExecMemsetNodeSetParams) == 1);
  CHECK(engine.driver.count(Function::cuGraphExecMemcpyNodeSetParams) == 1);
  CHECK(filled_last(engine.driver).at(0) == of<Array>(engine.arrays[1]).address());
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[1])));
  CHECK(engine.driver.count(Function::cuGraphExecMemsetNodeSetParams) == 1);
}

TEST_CASE("an executable that does not take other memory for a copy is made anew") {
  WholeEngine engine;
  engine.arrays = {engine.array(64), engine.array(64)};
  const nb::object graph = make_graph(engine, engine.arrays[0]);
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[0])));
  const std::size_t made = engine.driver.count(Function::cuGraphInstantiateWithFlags);
  engine.driver.refuse(Function::cuGraphExecMemcpyNodeSetParams, CUDA_ERROR_INVALID_VALUE);
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[1])));
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == made + 1);
  CHECK(filled_last(engine.driver).at(0) == of<Array>(engine.arrays[1]).address());
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[0])));  // which is set in that one again
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == made + 1);
  CHECK(filled_last(engine.driver).at(0) == of<Array>(engine.arrays[0]).address());
}

TEST_CASE("a graph is made for its first launch outside of the submission, with what that launch replaces") {
  WholeEngine engine;
  engine.arrays = {engine.array(64), engine.array(64)};
  const nb::object graph = make_graph(engine, engine.arrays[0], false);
  CHECK(engine.driver.count(Function::cuGraphCreate) == 0);
  int made_count = 0;
  engine.engine.hooks.making = nb::cpp_function([&](nb::handle asked) {
    ++made_count;
    CHECK(engine.engine.depth == 0);
    CHECK(asked.is(graph));
    of<GraphObject>(graph).graph->make();
    return nb::none();
  });
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[1])));
  CHECK(made_count == 1);
  CHECK(of<GraphObject>(graph).graph->instantiations() == 1);
  CHECK(engine.driver.count(Function::cuGraphExecMemsetNodeSetParams) == 0);
  CHECK(filled_last(engine.driver).at(0) == of<Array>(engine.arrays[1]).address());
  CHECK_FALSE(engine.run(launch_of(graph, engine.arrays[0])));
  CHECK(made_count == 1);
  CHECK(filled_last(engine.driver).at(0) == of<Array>(engine.arrays[0]).address());
}

TEST_CASE("a graph that was made while the device worked has room made before the first work after a rest") {
  WholeEngine engine;
  engine.arrays = {engine.array(64)};
  CHECK_FALSE(engine.submit(engine.fill(engine.arrays[0])));
  engine.hold();
  CHECK_FALSE(engine.submit(engine.fill(engine.arrays[0])));
  const nb::object graph = make_graph(engine, engine.arrays[0]);
  CHECK_FALSE(engine.submit(launch_of(graph, engine.arrays[0])));
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 1);  // its own
  engine.go_on();
  engine.driver.forget_calls();
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 1);
  CHECK(engine.driver.count(Function::cuGraphExecDestroy) == 1);
  bool is_before = true;
  for (const FakeDriver::Call& call : engine.driver.calls()) {
    if (call.function == Function::cuGraphInstantiateWithFlags) CHECK(is_before);
    if (call.function == Function::cuMemsetD8Async) is_before = false;
  }
  CHECK_FALSE(is_before);
  engine.driver.forget_calls();
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 0);
  CHECK(engine.left_behind() == "");
}

TEST_CASE("whichever call is refused, a graph is made another time, or launched with what was asked for") {
  std::size_t raised_count = 0;
  auto prepare = [](WholeEngine& engine) { engine.arrays = {engine.array(64), engine.array(64), engine.array(64)}; };
  auto attempt = [&](WholeEngine& engine) {
    const auto before = engine.handles();
    nb::object graph;
    auto check = [&](const std::optional<Raised>& raised) {
      if (!raised) return;
      ++raised_count;
      CHECK(raised->kind == "refused");
      CHECK(raised->function == engine.driver.refused_function());
    };
    check(raised_by([&] { graph = make_graph(engine, engine.arrays[0]); }));
    CHECK(engine.left_behind() == "");
    if (!graph.is_valid()) CHECK_FALSE(raised_by([&] { graph = make_graph(engine, engine.arrays[0]); }));
    for (const int i : {1, 2, 0, 1}) {
      engine.driver.forget_calls();
      const auto raised = engine.run(launch_of(graph, engine.arrays[static_cast<std::size_t>(i)]));
      check(raised);
      CHECK(engine.left_behind() == "");
      const auto filled = filled_last(engine.driver);
      if (!raised) REQUIRE_FALSE(filled.empty());
      if (!filled.empty()) CHECK(filled.at(0) == of<Array>(engine.arrays[static_cast<std::size_t>(i)]).address());
    }
    engine.driver.refuse_no_more();
    graph.reset();
    engine.settle();
    // Objects that the driver does not take back are gone.
    const std::string refused = engine.driver.refused_function();
    const bool is_end = refused == "cuMemFree" || refused.find("Destroy") != std::string::npos;
    if (!is_end) CHECK(engine.handles() == before);
    CHECK(engine.left_behind() == "");
  };
  refuse_each(prepare, attempt);
  CHECK(raised_count > 10);
}
