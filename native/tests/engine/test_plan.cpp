// The plan that a graph's sink makes of the same programs: its nodes, and their order. No engine, no driver.
#include <doctest/doctest.h>

#include <random>
#include <string>

#include "counting_sink.hpp"
#include "dataflow/graph_recording.hpp"
#include "dataflow/policies.hpp"
#include "random_launches.hpp"

using namespace aiocuda::driver::tests;
namespace nb = nanobind;
namespace dataflow = aiocuda::dataflow;

namespace {

using After = std::vector<std::vector<dataflow::NodeIndex>>;

// Programs, and a sink that makes a plan of them. Its memory is nobody's: no node runs.
class Planner : public Builder {
 public:
  nb::object array(std::uint64_t size_bytes = 64) {
    auto buffer = std::make_unique<dataflow::Buffer>(size_bytes, 0);
    buffer->address = last_address_ += 4096;
    return make<Array>(Array{BufferRef(std::move(buffer)), 0, 0, byte, {static_cast<std::int64_t>(size_bytes)}});
  }

  const dataflow::GraphPlan& plan_of(const nb::object& root) {
    const nb::object placement = make<Placement>();
    result_ = sink.record(root, of<Placement>(placement));
    return sink.plan();
  }
  After after(const nb::object& root) {
    plan_of(root);
    return recorded();
  }
  After recorded() const {
    After found;
    for (const dataflow::GraphNode& node : sink.plan().nodes) found.emplace_back(node.after.begin(), node.after.end());
    return found;
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> found;
    for (const dataflow::GraphNode& node : sink.plan().nodes) found.push_back(name_of(node.kind()));
    return found;
  }

 private:
  dataflow::GraphSink::Services services() {
    dataflow::GraphSink::Services services;
    services.allocate = [this](dataflow::Buffer& buffer, Op*) { buffer.address = last_address_ += 4096; };
    services.object_of = [](Array&& array) { return make<Array>(std::move(array)); };
    services.is_peer = [](std::int32_t, std::int32_t) { return true; };
    services.lift = [](nb::handle value) { return nb::borrow(value); };
    return services;
  }

  std::uint64_t last_address_ = 1ull << 40;

 public:
  dataflow::GraphSink sink{services(), "here"};

 private:
  nb::object result_;
};

// Which nodes come before which, by the nodes that each is put behind.
std::vector<std::vector<bool>> closure(const After& after) {
  std::vector<std::vector<bool>> before(after.size(), std::vector<bool>(after.size()));
  for (std::size_t i = 0; i < after.size(); ++i)
    for (const dataflow::NodeIndex j : after[i]) {
      before[i][j] = true;
      for (std::size_t k = 0; k < j; ++k) before[i][k] = before[i][k] || before[j][k];
    }
  return before;
}

}  // namespace

TEST_CASE("a diamond is a node for each launch: branches stand beside one another, what joins them behind all") {
  Planner planner;
  const nb::object from = planner.launch({}, {planner.array()});
  std::vector<nb::object> branches;
  for (int i = 0; i < 3; ++i) branches.push_back(planner.launch({from}, {planner.array()}));
  const nb::object root = planner.launch(branches, {planner.array()});
  CHECK(planner.after(root) == After{{}, {0}, {0}, {0}, {1, 2, 3}});
  CHECK(planner.kinds() == std::vector<std::string>(5, "kernel"));
}

TEST_CASE("a new array is no node, its fill and the copy to it are, in the order of their bytes") {
  Planner planner;
  const nb::object filled = planner.create(64, 0, 4);
  const nb::object copied = planner.copy(planner.create(64, 0), filled);
  const nb::object root = planner.gather({planner.fill(copied), planner.launch({filled}, {planner.array()})});
  CHECK(planner.after(root) == After{{}, {0}, {1}, {0}});
  CHECK(planner.kinds() == std::vector<std::string>{"fill", "copy", "fill", "kernel"});
}

TEST_CASE("an operation of several nodes is one to all others: who comes later stands behind their join") {
  Planner planner;
  nb::object dense = planner.array(1024);
  Array strided = of<Array>(dense);
  strided.shape = {4, 4, 16};
  strided.strides = {256, 64, 1};
  const nb::object view = make<Array>(strided);
  const nb::object other = planner.array(256);
  of<Array>(other).shape = {4, 4, 16};
  const nb::object first = planner.fill(dense);
  const nb::object copied = planner.copy(view, other);
  const nb::object root = planner.gather({first, planner.fill(copied)});
  const dataflow::GraphPlan& plan = planner.plan_of(root);
  REQUIRE(plan.nodes.size() > 3);
  CHECK(plan.nodes.back().kind() == dataflow::NodeKind::join);
  After after;
  for (const dataflow::GraphNode& node : plan.nodes) after.emplace_back(node.after.begin(), node.after.end());
  const auto before = closure(after);
  const auto kinds = planner.kinds();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) CHECK(before[i][0]);
    for (std::size_t j = 0; j < i; ++j) {
      if (kinds[i] == "copy" && kinds[j] == "copy") CHECK_FALSE(before[i][j]);  // parts of one operation
      if (kinds[i] == "fill" && kinds[j] == "copy") CHECK(before[i][j]);
    }
  }
}

TEST_CASE("a chain of 20,000 launches is as many nodes, each behind the one before it") {
  constexpr std::size_t count = 20'000;
  Planner planner;
  const auto writes_one = planner.signature(0, 1);
  const nb::object kernel = nb::str("a kernel");
  nb::object op = planner.launch_of(kernel, *writes_one, {planner.array()});
  for (std::size_t i = 1; i < count; ++i) op = planner.launch_of(kernel, *writes_one, {op});
  const After after = planner.after(op);
  REQUIRE(after.size() == count);
  std::size_t wrong = after.front().size();
  for (std::size_t i = 1; i < count; ++i) wrong += after[i] != std::vector{static_cast<dataflow::NodeIndex>(i - 1)};
  CHECK(wrong == 0);
}

TEST_CASE("random programs: nodes in the order of the walk, and before another exactly if bytes make it so") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    auto build = [seed](Builder& builder, const std::vector<nb::object>& arrays) {
      std::mt19937 random(seed);
      return RandomLaunches(builder, arrays, random);
    };
    // What is submitted one by one.
    Planner submitter;
    std::vector<nb::object> arrays;
    for (int i = 0; i < 3; ++i) arrays.push_back(submitter.array());
    CountingSink counting;
    const RandomLaunches submitted = build(submitter, arrays);
    const nb::object policy = make<dataflow::SingleStream>(), placement = make<Placement>();
    of<Placement>(placement).policy = &of<dataflow::Policy>(policy);
    CHECK(Walked(counting, submitted.root, placement).step());
    // By definition: of two that touch the same bytes, one of them writing, the earlier comes first.
    const auto& steps = counting.steps();
    After conflicts(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        for (const auto& [a, writes_a] : steps[i].touched)
          for (const auto& [b, writes_b] : steps[j].touched)
            if (a == b && (writes_a || writes_b)) conflicts[i].push_back(static_cast<dataflow::NodeIndex>(j));

    Planner planner;
    arrays.clear();
    for (int i = 0; i < 3; ++i) arrays.push_back(planner.array());
    const RandomLaunches recorded = build(planner, arrays);
    const dataflow::GraphPlan& plan = planner.plan_of(recorded.root);
    After after;
    std::vector<const Op*> ordered;
    for (const dataflow::GraphNode& node : plan.nodes) {
      after.emplace_back(node.after.begin(), node.after.end());
      ordered.push_back(&op_of(node.op));
    }
    CHECK(recorded.numbers(ordered) == submitted.numbers(counting.ordered()));
    REQUIRE(after.size() == conflicts.size());
    CHECK(closure(after) == closure(conflicts));
  }
}

TEST_CASE("a body is between its conditional node and a join: all before it comes before, and all after it after") {
  Planner planner;
  planner.sink.record(planner.launch({}, {planner.array()}), Placement());
  planner.sink.record(planner.launch({}, {planner.array()}), Placement());
  planner.sink.open_body(planner.sink.add_condition(), true, 1, 0);
  const nb::object made = planner.launch({}, {planner.create(64, 0)});
  planner.sink.record(planner.gather({made, planner.launch({}, {planner.array()})}), Placement());
  planner.sink.close_body();
  planner.sink.record(planner.launch({}, {planner.array()}), Placement());
  const dataflow::GraphPlan& plan = planner.sink.plan();
  CHECK(planner.kinds() ==
        std::vector<std::string>{"kernel", "kernel", "conditional", "kernel", "kernel", "join", "kernel"});
  const auto before = closure(planner.recorded());
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(before[2][i] == (i < 2));
    CHECK(before[5][i] == (i < 5));
    CHECK(before[6][i] == (i < 6));
    CHECK(plan.nodes[i].inside == (i == 3 || i == 4 ? 2 : dataflow::no_node));
  }
  CHECK_FALSE(before[4][3]);
  // Edges of the driver's: none into a body, and one out of it begins at the conditional node.
  CHECK(dataflow::edge_to(plan, plan.nodes[3], 2) == std::nullopt);
  CHECK(dataflow::edge_to(plan, plan.nodes[5], 4) == 2);
  CHECK(dataflow::edge_to(plan, plan.nodes[6], 5) == 5);
  CHECK(dataflow::branches_by_device(plan) == std::vector<std::uint64_t>{4});  // two before it, and two in it
}

TEST_CASE("the bodies of a branch have no edges between them, and bodies nest") {
  Planner planner;
  const nb::object array = planner.array();
  planner.sink.open_body(planner.sink.add_condition(), false, 2, 0);
  planner.sink.record(planner.launch({}, {array}), Placement());
  planner.sink.open_next_body();
  planner.sink.open_body(planner.sink.add_condition(), true, 1, 0);
  planner.sink.record(planner.launch({}, {array}), Placement());
  planner.sink.close_body();
  planner.sink.record(planner.launch({}, {array}), Placement());
  planner.sink.close_body();
  const dataflow::GraphPlan& plan = planner.sink.plan();
  REQUIRE(planner.kinds() ==
          std::vector<std::string>{"conditional", "kernel", "conditional", "kernel", "join", "kernel", "join"});
  const std::vector<dataflow::NodeIndex> inside{dataflow::no_node, 0, 0, 2, 0, 0, dataflow::no_node};
  const std::vector<std::uint8_t> body{0, 0, 1, 0, 1, 1, 0};
  for (std::size_t i = 0; i < inside.size(); ++i) {
    CHECK(plan.nodes[i].inside == inside[i]);
    CHECK(plan.nodes[i].body == body[i]);
  }
  CHECK(dataflow::edge_to(plan, plan.nodes[2], 1) == std::nullopt);  // of two bodies, one runs
  CHECK(dataflow::edge_to(plan, plan.nodes[4], 3) == 2);
  CHECK(dataflow::edge_to(plan, plan.nodes[5], 3) == 2);
  CHECK(dataflow::edge_to(plan, plan.nodes[6], 5) == 0);
  CHECK(plan.conditions == 2);
}

TEST_CASE("memory from outside that a body uses is no other array's until the last iteration") {
  Planner planner;
  const nb::object kept = planner.create(64, 0, 4);
  planner.sink.record(kept, Placement());
  planner.sink.open_body(planner.sink.add_condition(), true, 1, 0);
  // The body reads it at the begin alone. Later ones of its arrays might lie there, and an iteration comes after that.
  nb::object last = planner.launch({kept}, {planner.create(64, 0)});
  for (int i = 0; i < 4; ++i) last = planner.launch({last}, {planner.create(64, 0)});
  planner.sink.record(last, Placement());
  planner.sink.close_body();
  const dataflow::GraphPlan plan = planner.sink.finish({}, nb::none());
  std::vector<std::uint64_t> offsets;
  for (const dataflow::Memory& memory : plan.memory) {
    REQUIRE(memory.shares_memory);
    offsets.push_back(memory.offset);
  }
  REQUIRE(offsets.size() == 6);
  for (std::size_t i = 1; i < offsets.size(); ++i) CHECK(offsets[i] != offsets[0]);
  CHECK(offsets[3] == offsets[1]);  // those of the body take turns
  CHECK(plan.nodes[1].kind() == dataflow::NodeKind::conditional);
  REQUIRE(plan.nodes[1].uses.size() == 1);
  CHECK_FALSE(plan.nodes[1].uses[0].writes);
}
