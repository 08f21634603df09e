// The walk over a sink that counts, pauses and refuses: what it orders, what a pause costs, and what an error or the
// end of an execution leaves behind.
#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>

#include "counting_sink.hpp"
#include "dataflow/policies.hpp"
#include "random_launches.hpp"

using namespace aiocuda::driver::tests;
namespace nb = nanobind;
namespace dataflow = aiocuda::dataflow;
using dataflow::State;

namespace {

constexpr std::size_t few = 10, some = 1'000, many = 20'000;

// What programs build, and what walks of it meet. `most`: how much a stream may hold.
struct World : Builder {
  explicit World(std::uint32_t most = 1'000'000, std::uint32_t streams = 1) : sink(streams) {
    auto& where = of<Placement>(placement);
    policy = streams == 1 ? make<dataflow::SingleStream>() : make<dataflow::Dataflow>(streams, 0);
    where.policy_object = policy;
    where.policy = &of<dataflow::Policy>(policy);
    where.device = 0;
    where.max_in_flight = most;
  }

  nb::object array() {
    return make<Array>(Array{BufferRef(std::make_unique<dataflow::Buffer>(64, 0)), 0, 0, byte, {64}});
  }
  // Each launch writes what the one before it wrote.
  std::vector<nb::object> chain(std::size_t count) {
    std::vector<nb::object> ops{launch_of(kernel, *writes_one, {array()})};
    while (ops.size() < count) ops.push_back(launch_of(kernel, *writes_one, {ops.back()}));
    return ops;
  }
  std::vector<nb::object> launches(std::size_t count) {
    std::vector<nb::object> ops;
    while (ops.size() < count) ops.push_back(launch_of(kernel, *writes_one, {array()}));
    return ops;
  }
  Walked walked(const nb::object& root) { return Walked(sink, root, placement); }

  CountingSink sink;
  nb::object policy, placement = make<Placement>(), kernel = nb::str("a kernel");
  std::shared_ptr<dataflow::Signature> writes_one = signature(0, 1);
};

std::vector<const Op*> pointers(const std::vector<nb::object>& ops) {
  std::vector<const Op*> found;
  for (const nb::object& each : ops) found.push_back(&op_of(each));
  return found;
}

// The error of a step, in words; empty where it raised none.
std::string error_of(Walked& walked) {
  try {
    walked.step();
  } catch (nb::python_error& error) {
    return error.what();
  }
  return "";
}

// Shapes of programs, of so many operations that are launches.
struct Shape {
  const char* name;
  std::function<nb::object(World&, std::size_t)> build;
};
std::vector<Shape> shapes() {
  return {
      {"a chain", [](World& world, std::size_t count) { return world.chain(count).back(); }},
      {"a zip", [](World& world, std::size_t count) { return world.gather(world.launches(count)); }},
      {"a zip of what all need",
       [](World& world, std::size_t count) {
         std::vector<nb::object> ops = world.launches(1);
         const auto reads_one = world.signature(1, 1);
         while (ops.size() < count)
           ops.push_back(world.launch_of(world.kernel, *reads_one, {ops.front(), world.array()}));
         return world.gather(ops);
       }},
      {"picks of zips, one behind another",
       [](World& world, std::size_t count) {
         nb::object op = world.launches(1).front();
         for (std::size_t i = 1; i < count; ++i)
           op = world.launch_of(world.kernel, *world.writes_one, {world.pick(world.gather({op, op}), 1)});
         return op;
       }},
      {"zips inside zips",
       [](World& world, std::size_t count) {
         nb::object op = world.launches(1).front();
         for (std::size_t i = 1; i < count; ++i) op = world.gather({world.launches(1).front(), op});
         return op;
       }},
      {"functions of then that return launches",
       [](World& world, std::size_t count) {
         nb::object op = world.launches(1).front();
         const nb::object function = nb::cpp_function(
             [&world](nb::object given) { return world.launch_of(world.kernel, *world.writes_one, {given}); });
         for (std::size_t i = 1; i < count; ++i) op = world.then(op, function);
         return op;
       }},
      {"a pyramid: each needs two of those below it",
       [](World& world, std::size_t count) {
         const auto reads_two = world.signature(2, 1);
         std::vector<nb::object> ops = world.launches(2);
         while (ops.size() < count)
           ops.push_back(world.launch_of(world.kernel, *reads_two, {ops[ops.size() - 2], ops.back(), world.array()}));
         return ops.back();
       }},
  };
}

}  // namespace

TEST_CASE("an operation is ordered once, after what it needs, and arguments from left to right") {
  World world;
  const auto first = world.launches(1).front();
  const auto left = world.launch({first}, {world.array()}), right = world.launch({first}, {world.array()});
  const auto both = world.launch({right, left}, {world.array()});
  const auto root = world.gather({both, world.pick(world.gather({left, right}), 0), both});
  Walked walked = world.walked(root);
  CHECK(walked.step());
  CHECK(world.sink.ordered() == pointers({first, right, left, both}));
  CHECK(walked.step());  // and never again
  CHECK(walked.visits == 0);
  CHECK(world.sink.steps().size() == 4);
}

TEST_CASE("programs of 20,000 operations are ordered once each, at the cost for each that small programs have") {
  for (const Shape& shape : shapes()) {
    INFO(shape.name);
    std::size_t asked_each = 0, visits_each = 0;
    for (const std::size_t count : {some, many}) {
      World world;
      const nb::object root = shape.build(world, count);
      Walked walked = world.walked(root);
      CHECK(walked.step());
      CHECK(world.sink.steps().size() == count);
      CHECK(world.sink.ordered_again == 0);
      if (count == some) {
        visits_each = walked.visits / count + 1;
        asked_each = walked.asked / count + 1;
        CHECK(visits_each <= 8);
      } else {
        CHECK(walked.visits <= visits_each * count);
        CHECK(walked.asked <= asked_each * count);
      }
    }
  }
}

TEST_CASE("to try a full stream again costs the same behind 10 operations and behind 20,000") {
  for (const Shape& shape : shapes()) {
    INFO(shape.name);
    std::vector<std::size_t> asked;
    for (const std::size_t count : {few, many}) {
      World world(static_cast<std::uint32_t>(count - 5));
      const nb::object root = shape.build(world, count);
      Walked walked = world.walked(root);
      CHECK_FALSE(walked.step());
      CHECK(world.sink.steps().size() == count - 5);
      for (int attempt = 0; attempt < 3; ++attempt) {
        CHECK_FALSE(walked.step());
        CHECK(walked.is_full);
        REQUIRE(walked.waits.size() == 1);
        CHECK(walked.visits == 1);
        asked.push_back(walked.asked);
      }
      world.sink.pass_all();
      CHECK(walked.step());
      CHECK(walked.visits <= 8 * 5 + 2 * count);  // zips inside zips come back one by one
      CHECK(world.sink.steps().size() == count);
    }
    for (const std::size_t each : asked) CHECK(each == asked.front());
  }
}

TEST_CASE(
    "a kernel that is not loaded and memory that is not there stop the walk at that operation, which goes on later") {
  std::vector<std::size_t> asked;
  for (const std::size_t count : {few, many}) {
    World world;
    std::vector<nb::object> ops = world.chain(count / 2);
    const nb::object made = world.create(256, 0);
    ops.push_back(world.launch({ops.back()}, {made}));
    const Op* const late = &op_of(ops.back());
    while (ops.size() < count) ops.push_back(world.launch_of(world.kernel, *world.writes_one, {ops.back()}));
    world.sink.not_loaded = {late};
    world.sink.without_room = {&op_of(made)};
    Walked walked = world.walked(ops.back());
    CHECK_FALSE(walked.step());
    for (int attempt = 0; attempt < 3; ++attempt) {
      CHECK_FALSE(walked.step());
      CHECK(walked.visits == 1);
      CHECK_FALSE(walked.full_memory);
      asked.push_back(walked.asked);
    }
    CHECK(world.sink.steps().size() == count / 2);
    world.sink.not_loaded.clear();
    for (int attempt = 0; attempt < 3; ++attempt) {
      CHECK_FALSE(walked.step());
      CHECK(walked.visits == 1);
      REQUIRE(walked.full_memory);
      CHECK(walked.full_memory->asked_bytes == 256);
      CHECK(op_of(made).state == State::pending);
    }
    world.sink.without_room.clear();
    CHECK(walked.step());
    CHECK(world.sink.steps().size() == count + 1);  // and the array
    CHECK(world.sink.steps()[count / 2].what == "create");
    CHECK(world.sink.steps()[count / 2 + 1].op == late);
  }
  for (const std::size_t each : asked) CHECK(each == asked.front());
}

TEST_CASE("maps hold up nothing that does not need them, and are looked at only when something has passed") {
  std::vector<std::size_t> asked;
  for (const std::size_t count : {few, many}) {
    World world(1'000'000, 2);
    std::size_t called = 0;
    const nb::object function = nb::cpp_function([&called](nb::object given) { return ++called, given; });
    std::vector<nb::object> parts, launches = world.launches(count);
    for (const nb::object& each : launches) parts.push_back(world.map(each, function));
    parts.push_back(world.launches(1).front());
    const nb::object root = world.gather(parts);
    Walked walked = world.walked(root);
    CHECK_FALSE(walked.step());
    CHECK(world.sink.steps().size() == count + 1);
    CHECK_FALSE(walked.is_full);
    CHECK(walked.waits.size() <= 2);  // the first of each stream
    for (int attempt = 0; attempt < 3; ++attempt) {
      CHECK_FALSE(walked.step());
      CHECK(walked.visits == 0);
      asked.push_back(walked.asked);
    }
    world.sink.pass(walked.waits.front());
    CHECK_FALSE(walked.step());
    CHECK(walked.visits == 1);
    REQUIRE(walked.path.due.size() == 1);
    walked.run_due();
    CHECK(called == 1);
    CHECK_FALSE(walked.step());
    CHECK(walked.visits == 0);
    world.sink.pass_all();
    CHECK_FALSE(walked.step());
    CHECK(walked.visits <= count);
    CHECK(walked.path.due.size() == count - 1);
    walked.run_due();
    CHECK(walked.step());
    CHECK(walked.visits <= 2);
    CHECK(called == count);
    CHECK(world.sink.steps().size() == count + 1);
  }
  for (const std::size_t each : asked) CHECK(each == asked.front());
}

TEST_CASE("a refused operation fails those that need it, and none that are done, or are not reached") {
  for (const std::size_t count : {few, many}) {
    World world;
    const std::vector<nb::object> ops = world.chain(count);
    const nb::object before = world.launches(1).front(), later = world.launches(1).front();
    const nb::object waiting = world.map(before, nb::cpp_function([](nb::object given) { return given; }));
    const nb::object root = world.gather({waiting, ops.back(), later});
    world.sink.refused = {&op_of(ops[count / 2])};
    Walked walked = world.walked(root);
    CHECK(error_of(walked).find("refused") != std::string::npos);
    CHECK(op_of(root).state == State::failed);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += op_of(ops[i]).state != (i < count / 2 ? State::submitted : State::failed);
    CHECK(wrong == 0);
    CHECK(op_of(before).state == State::submitted);
    CHECK(op_of(waiting).state == State::pending);
    CHECK(op_of(later).state == State::pending);
    CHECK_FALSE(walked.path.is_begun());
    // The same error again, of the root and of a consumer that comes later.
    CHECK(error_of(walked).find("refused") != std::string::npos);
    CHECK(walked.visits == 1);
    Walked again = world.walked(world.gather({ops.back()}));
    CHECK(error_of(again).find("refused") != std::string::npos);
    CHECK(again.visits == 2);
    CHECK(world.sink.steps().size() == count / 2 + 1);
    // The others go on.
    world.sink.pass_all();
    Walked others = world.walked(world.gather({waiting, later}));
    CHECK_FALSE(others.step());
    others.run_due();
    CHECK(others.step());
    CHECK(world.sink.steps().size() == count / 2 + 2);
  }
}

TEST_CASE("what depends on a function that raised fails with its error, also where it was parked") {
  World world;
  const nb::object raises =
      world.map(world.launches(1).front(), nb::cpp_function([](nb::object given) { return given; }));
  const nb::object consumer = world.launch_of(world.kernel, *world.writes_one, {raises});
  const nb::object beside =
      world.map(world.launches(1).front(), nb::cpp_function([](nb::object given) { return given; }));
  const nb::object root = world.gather({world.gather({consumer}), beside});
  Walked walked = world.walked(root);
  CHECK_FALSE(walked.step());
  world.sink.pass_all();
  CHECK_FALSE(walked.step());
  CHECK(walked.path.due.size() == 2);
  op_of(raises).fail(nb::borrow(PyExc_ValueError)("of the function"));  // as the engine does for it
  CHECK(error_of(walked).find("of the function") != std::string::npos);
  CHECK(op_of(consumer).state == State::failed);
  CHECK(op_of(root).state == State::failed);
  CHECK(op_of(beside).state == State::pending);
}

TEST_CASE("an execution that is dropped in the middle leaves its operations to others, with nothing held") {
  for (const Shape& shape : shapes()) {
    INFO(shape.name);
    for (const std::size_t count : {few, many}) {
      World world(static_cast<std::uint32_t>(count / 2));
      nb::object root = shape.build(world, count);
      const auto references = Py_REFCNT(root.ptr());
      {
        Walked dropped = world.walked(root);
        CHECK_FALSE(dropped.step());
        CHECK(op_of(root).held + op_of(root).walker > 0);
      }
      CHECK(op_of(root).held == 0);
      CHECK(op_of(root).walker == 0);
      CHECK(op_of(root).state == State::pending);
      CHECK(Py_REFCNT(root.ptr()) == references);
      CHECK(world.sink.steps().size() == count / 2);
      world.sink.pass_all();
      Walked another = world.walked(root);
      CHECK(another.step());
      CHECK(world.sink.steps().size() == count);
    }
    // All that was built ends with its root, however long that is.
    World world(static_cast<std::uint32_t>(many / 2));
    Walked dropped = world.walked(shape.build(world, many));
    CHECK_FALSE(dropped.step());
  }
}

TEST_CASE("walks that share operations order each once, in whichever turns they go on") {
  World world(4);
  const std::vector<nb::object> ops = world.chain(8);
  Walked first = world.walked(world.gather({ops.back()}));
  CHECK_FALSE(first.step());
  Walked second = world.walked(world.gather({ops[5], ops.back()}));
  CHECK_FALSE(second.step());
  CHECK(world.sink.steps().size() == 4);
  world.sink.pass_all();
  CHECK(second.step());
  const std::size_t asked = world.sink.asked();
  CHECK(first.step());
  CHECK(first.visits <= 5);  // the part of the path that others have done, and the gather
  CHECK(world.sink.asked() - asked <= 20);
  CHECK(world.sink.ordered() == pointers(ops));
}

TEST_CASE("an operation that waits for itself is an error, and the program's others go on") {
  World world;
  const nb::object beside = world.launches(1).front();
  nb::object itself;
  itself = world.then(beside, nb::cpp_function([&](nb::object) { return world.gather({itself}); }));
  Walked walked = world.walked(itself);
  CHECK(error_of(walked).find("waits for itself") != std::string::npos);
  CHECK(op_of(itself).state == State::failed);
  CHECK(op_of(beside).state == State::submitted);
  itself.reset();
}

TEST_CASE(
    "random programs: with any pauses the walk orders what it orders without, and nothing that conflicts is "
    "unordered") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::vector<std::vector<std::size_t>> orders;
    for (const bool pauses : {false, true}) {
      std::mt19937 random(seed), chance(seed + 1);
      World world(pauses ? 1 + seed % 3 : 1'000'000, 3);
      std::vector<nb::object> arrays;
      for (int i = 0; i < 3; ++i) arrays.push_back(world.array());
      const RandomLaunches program(world, arrays, random);
      Walked walked = world.walked(program.root);
      std::size_t attempts = 0;
      while (!walked.step()) {
        REQUIRE(walked.is_full);
        REQUIRE(++attempts < 1'000);
        if (chance() % 3) world.sink.pass(walked.waits.front());
        if (chance() % 5 == 0) world.sink.pass_all();
      }
      orders.push_back(program.numbers(world.sink.ordered()));
      const auto& steps = world.sink.steps();
      std::size_t unordered = 0;
      for (std::size_t i = 0; i < steps.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          for (const auto& [a, writes_a] : steps[i].touched)
            for (const auto& [b, writes_b] : steps[j].touched)
              // With pauses some work has passed already. The walk makes no wait for that.
              unordered += !pauses && a == b && (writes_a || writes_b) && !steps[i].is_after(steps[j]);
      CHECK(unordered == 0);
    }
    CHECK(orders[0] == orders[1]);
  }
}
