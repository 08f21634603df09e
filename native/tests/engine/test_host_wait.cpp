// Executions that wait for work of another thread, what they claim meanwhile, and those that wait for room.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "completion/port.hpp"
#include "whole_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;
namespace nb = nanobind;
using aiocuda::completion::Port;
using aiocuda::dataflow::State;
using Driven = Execution::Driven;

namespace {

// A kernel whose loading is the test's to end.
struct SlowKernel {
  explicit SlowKernel(WholeEngine& of)
      : engine(of),
        signature(of.signature(0, 1, false)),
        object(nb::module_::import_("types").attr("SimpleNamespace")()) {
    object.attr("_is_loaded") = nb::cpp_function([this](int) { return is_loaded(); });
    object.attr("_loading") = nb::cpp_function([this](int) {
      ++asked_count;
      work = make<HostWork>();
      return work;
    });
    object.attr("_raise_failure") = nb::cpp_function([this](nb::handle, nb::handle, int) {
      if (!is_loaded()) aiocuda::dataflow::raise(PyExc_SyntaxError, "the compiler says no");
    });
  }
  bool is_loaded() const { return !signature->loaded.empty(); }
  nb::object launch(const nb::object& array) { return engine.launch_of(object, *signature, {array}); }
  void load() { signature->loaded = engine.signature(0, 1)->loaded; }
  void end() { of<HostWork>(work).end(); }

  WholeEngine& engine;
  std::shared_ptr<aiocuda::dataflow::Signature> signature;
  nb::object object, work;
  int asked_count = 0;
};

// Waits for a token of a port.
std::vector<Port::Due> take(Port& port, std::size_t count) {
  std::vector<Port::Due> found;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (found.size() < count && std::chrono::steady_clock::now() < until) {
    for (const Port::Due& each : port.take()) found.push_back(each);
    if (found.size() < count) std::this_thread::yield();
  }
  return found;
}
aiocuda::completion::Token token(std::uintptr_t number) { return reinterpret_cast<aiocuda::completion::Token>(number); }

struct Waiting {
  explicit Waiting(WholeEngine& engine) : port(std::make_shared<Port>(engine.engine.orphans)) {}
  Driven drive(Execution& execution, std::uintptr_t number) { return execution.drive({port, token(number), false}); }
  std::shared_ptr<Port> port;
};

}  // namespace

TEST_CASE(
    "a launch whose kernel is not loaded calls nothing; who touches the same memory waits behind it, others pass") {
  WholeEngine engine;
  engine.arrays = {engine.array(64), engine.array(64)};
  SlowKernel kernel(engine);
  Waiting waiting(engine);
  engine.driver.forget_calls();
  const nb::object slow = kernel.launch(engine.arrays[0]), behind = engine.fill(engine.arrays[0]);
  auto first = engine.execution(slow), second = engine.execution(behind);
  CHECK(waiting.drive(*first, 1) == Driven::goes_on);
  CHECK(waiting.drive(*second, 2) == Driven::goes_on);
  CHECK(kernel.asked_count == 1);
  CHECK(engine.driver.work().empty());
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[1])));
  engine.now_drained();
  CHECK(engine.driver.work().size() == 1);
  kernel.load();
  kernel.end();
  const auto due = take(*waiting.port, 2);
  REQUIRE(due.size() == 2);
  CHECK(due[0].token == token(1));
  CHECK(due[1].token == token(2));
  // In whichever order they are driven now: the second was told last.
  CHECK(waiting.drive(*first, 1) != Driven::goes_on);
  CHECK(waiting.drive(*second, 2) != Driven::goes_on);
  engine.now_drained();
  const auto work = engine.driver.work();
  REQUIRE(work.size() == 3);
  CHECK(work[1].function == Function::cuLaunchKernel);
  CHECK(work[2].is_after(work[1]));
  first.reset();
  second.reset();
  CHECK(engine.left_behind() == "");
}

TEST_CASE("an execution that is dropped while it waits claims nothing any more") {
  WholeEngine engine;
  engine.arrays = {engine.array(64)};
  SlowKernel kernel(engine);
  Waiting waiting(engine);
  const nb::object slow = kernel.launch(engine.arrays[0]);
  auto first = engine.execution(slow);
  CHECK(waiting.drive(*first, 1) == Driven::goes_on);
  first.reset();
  CHECK(engine.engine.claims.is_empty());
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  CHECK(op_of(slow).state == State::pending);
  kernel.load();
  kernel.end();
  CHECK_FALSE(engine.run(slow));  // it can be executed later
  CHECK(engine.left_behind() == "");
}

TEST_CASE("a kernel that cannot be loaded fails its launch, and holds up nobody behind it") {
  WholeEngine engine;
  engine.arrays = {engine.array(64)};
  SlowKernel kernel(engine);
  Waiting waiting(engine);
  const nb::object slow = kernel.launch(engine.arrays[0]), behind = engine.fill(engine.arrays[0]);
  auto first = engine.execution(slow), second = engine.execution(behind);
  CHECK(waiting.drive(*first, 1) == Driven::goes_on);
  CHECK(waiting.drive(*second, 2) == Driven::goes_on);
  kernel.end();
  CHECK(take(*waiting.port, 2).size() == 2);
  const auto raised = raised_by([&] { waiting.drive(*first, 1); });
  REQUIRE(raised);
  CHECK(raised->kind.find("the compiler says no") != std::string::npos);
  CHECK(op_of(slow).state == State::failed);
  CHECK(waiting.drive(*second, 2) != Driven::goes_on);
  first.reset();
  second.reset();
  CHECK(engine.left_behind() == "");
}

namespace {

// Devices whose opening is the test's to end.
struct SlowOpening {
  explicit SlowOpening(WholeEngine& of) : engine(of) {
    engine.engine.hooks.opening = nb::cpp_function([this](int ordinal) {
      ++asked_count;
      CHECK(ordinal == 1);
      if (!work.is_valid() || has_ended()) work = make<HostWork>();
      return work;
    });
    engine.engine.hooks.not_done = nb::cpp_function([this](nb::handle, nb::handle asked, int) {
      told = nb::borrow(asked);
      if (has_ended()) aiocuda::dataflow::raise(PyExc_OSError, "the driver says no");
    });
  }
  bool has_ended() const { return of<HostWork>(work).ended->has_ended(); }
  void end() { of<HostWork>(work).end(); }

  WholeEngine& engine;
  nb::object work, told;
  int asked_count = 0;
};

}  // namespace

TEST_CASE("an operation whose device is not open calls nothing; others pass, and it goes on when the device is open") {
  WholeEngine engine;
  engine.arrays = {engine.array(64)};
  SlowOpening opening(engine);
  Waiting waiting(engine);
  engine.driver.forget_calls();
  const nb::object first = engine.create(64, 1), second = engine.create(32, 1);
  auto waits = engine.execution(first), shares = engine.execution(second);
  CHECK(waiting.drive(*waits, 1) == Driven::goes_on);
  CHECK(waiting.drive(*shares, 2) == Driven::goes_on);
  CHECK(opening.asked_count == 2);
  CHECK(engine.driver.calls().empty());
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  engine.engine.open(1);
  opening.end();
  CHECK(take(*waiting.port, 2).size() == 2);
  CHECK(waiting.drive(*waits, 1) != Driven::goes_on);
  CHECK(waiting.drive(*shares, 2) != Driven::goes_on);
  CHECK(opening.asked_count == 2);
  waits.reset();
  shares.reset();
  CHECK(engine.left_behind() == "");
}

TEST_CASE("a device that cannot be opened fails what needed it, and is asked for again by what comes later") {
  WholeEngine engine;
  SlowOpening opening(engine);
  Waiting waiting(engine);
  const nb::object op = engine.create(64, 1);
  auto execution = engine.execution(op);
  CHECK(waiting.drive(*execution, 1) == Driven::goes_on);
  opening.end();
  CHECK(take(*waiting.port, 1).size() == 1);
  const auto raised = raised_by([&] { waiting.drive(*execution, 1); });
  REQUIRE(raised);
  CHECK(raised->kind.find("the driver says no") != std::string::npos);
  CHECK(opening.told.is(op));
  CHECK(op_of(op).state == State::failed);
  CHECK_FALSE(engine.engine.devices.is_open(1));
  auto later = engine.execution(engine.create(64, 1));
  CHECK(waiting.drive(*later, 2) == Driven::goes_on);
  CHECK(opening.asked_count == 2);
  execution.reset();
  later.reset();
  CHECK(engine.left_behind() == "");
}

TEST_CASE("a device of which a call is refused while it is opened is not open, and leaves nothing") {
  for (std::size_t nth = 1;; ++nth) {
    WholeEngine engine;
    engine.driver.refuse_nth(nth);
    const auto raised = raised_by([&] { engine.engine.open(1); });
    if (!engine.driver.has_refused_nth()) break;
    INFO("call ", nth, " is refused");
    CHECK(engine.engine.devices.is_open(1) == !raised);
    CHECK_FALSE(raised_by([&] { engine.engine.open(1); }));
    CHECK(engine.left_behind() == "");
    REQUIRE(nth < 50);
  }
}

TEST_CASE("claims: who came first waits for nobody who came later, and a claim ends with its work") {
  WholeEngine engine;
  engine.arrays = {engine.array(64)};
  aiocuda::dataflow::Buffer& buffer = *of<Array>(engine.arrays[0]).buffer;
  using aiocuda::dataflow::Use;
  Claims claims;
  const std::vector<Use> low{{&buffer, {0, 32}, true}}, high{{&buffer, {32, 64}, false}},
      all{{&buffer, {0, 64}, false}};
  HostWork work, other_work;
  int a = 0, b = 0;
  const Claims::Place first = claims.next_place(), second = claims.next_place();
  claims.put(&a, first, work.behind, low);
  claims.put(&b, second, other_work.behind, high);
  CHECK(claims.find(all, 0) == work.behind);
  CHECK(claims.find(all, second) == work.behind);
  CHECK(claims.find(all, first) == nullptr);
  CHECK(claims.find(high, 0) == nullptr);  // both read
  CHECK(claims.find({{&buffer, {40, 44}, true}}, 0) == other_work.behind);
  claims.put(&a, first, work.behind, {});  // in place of what it claimed
  CHECK(claims.find(all, 0) == nullptr);
  claims.put(&a, first, work.behind, low);
  work.end();
  CHECK(claims.find(all, 0) == nullptr);
  claims.drop(&b);
  CHECK(claims.is_empty());
}

TEST_CASE("who meets a full stream stands in line, is told when there is room, and can leave") {
  WholeEngine engine(1);
  engine.arrays = {engine.array(64)};
  Waiting waiting(engine);
  nb::object narrow = make<Placement>(of<Placement>(engine.placement));
  of<Placement>(narrow).max_in_flight = 4;
  CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
  engine.hold();
  std::vector<std::unique_ptr<Execution>> submitted;
  for (int i = 0; i < 4; ++i) {
    submitted.push_back(engine.execution(engine.fill(engine.arrays[0]), narrow));
    CHECK(raised_by([&] { submitted.back()->submit(); }) == std::nullopt);
  }
  auto third = engine.execution(engine.fill(engine.arrays[0]), narrow);
  auto fourth = engine.execution(engine.fill(engine.arrays[0]), narrow);
  engine.driver.forget_calls();
  CHECK(waiting.drive(*third, 3) == Driven::goes_on);
  CHECK(waiting.drive(*fourth, 4) == Driven::goes_on);
  CHECK(engine.driver.work().empty());
  CHECK_FALSE(engine.engine.lines.is_empty());
  CHECK(Execution::leave(third->op(), token(3)));
  CHECK_FALSE(Execution::leave(third->op(), token(3)));
  engine.go_on();
  const auto due = take(*waiting.port, 1);
  REQUIRE(due.size() == 1);
  CHECK(due[0].token == token(4));
  CHECK(waiting.drive(*fourth, 4) != Driven::goes_on);
  engine.now_drained();
  CHECK(engine.driver.work().size() == 1);
  third.reset();
  fourth.reset();
  submitted.clear();
  engine.settle();
  CHECK(engine.left_behind() == "");
}

TEST_CASE("whichever call is refused to who stands in line, the line is left, and goes on") {
  for (std::size_t nth = 1;; ++nth) {
    WholeEngine engine(1);
    engine.arrays = {engine.array(64)};
    Waiting waiting(engine);
    nb::object narrow = make<Placement>(of<Placement>(engine.placement));
    of<Placement>(narrow).max_in_flight = 2;
    CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
    engine.hold();
    const nb::object before = engine.fill(engine.arrays[0]), full = engine.fill(engine.arrays[0]);
    CHECK_FALSE(engine.submit(before));
    CHECK_FALSE(engine.submit(engine.fill(engine.arrays[0])));
    engine.driver.refuse_nth(nth);
    auto execution = engine.execution(full, narrow);
    Driven driven = Driven::goes_on;
    const auto raised = raised_by([&] { driven = waiting.drive(*execution, 1); });
    CHECK(driven == Driven::goes_on);
    const bool is_refused = engine.driver.has_refused_nth();
    engine.driver.refuse_no_more();
    if (raised) CHECK(raised->function == engine.driver.refused_function());
    if (raised) CHECK(engine.engine.lines.is_empty());
    engine.go_on();
    if (!raised) CHECK(take(*waiting.port, 1).size() == 1);
    execution.reset();
    if (raised)
      CHECK_FALSE(engine.run(engine.fill(engine.arrays[0])));
    else
      CHECK_FALSE(engine.run(full));
    CHECK(op_of(before).state == State::submitted);
    engine.settle();
    CHECK(engine.left_behind() == "");
    if (!is_refused) break;
    REQUIRE(nth < 50);
  }
}
