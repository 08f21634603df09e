// When the engine makes room for executables in the driver's stores, over a driver that counts and refuses.
#include <doctest/doctest.h>

#include <array>

#include "driver/graph_room.hpp"
#include "fake_engine.hpp"

using namespace aiocuda::driver;
using namespace aiocuda::driver::tests;

namespace {

CUstream default_stream(FakeEngine& engine, std::int32_t device = 0) {
  return engine.handle(engine.devices.at(device).default_stream);
}
void submit(FakeEngine& engine, std::int32_t device = 0) { engine.submit(engine.devices.at(device).default_stream); }

// Devices that work, and on each an executable that was made meanwhile.
void make_while_busy(FakeEngine& engine, std::initializer_list<std::int32_t> devices) {
  std::vector<std::uint64_t> places;
  for (const std::int32_t device : devices) {
    engine.driver.hold(default_stream(engine, device));
    submit(engine, device);
    places.resize(static_cast<std::size_t>(device) + 1);
    places.back() = 1;
  }
  engine.graph_room.prepare(places);
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 0);
  engine.graph_room.take(places);
  CHECK(engine.graph_room.is_missing());
}

std::uint64_t spare(FakeEngine& engine, std::int32_t device = 0) {
  ExecutableStore& store = engine.devices.at(device).executables;
  std::uint64_t found = 0;
  while (store.has(found + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("room that is missing is made when the device is at rest, once") {
  FakeEngine engine;
  make_while_busy(engine, {0});
  engine.driver.forget_calls();
  engine.graph_room.make_where_idle();
  CHECK(engine.graph_room.is_missing());
  CHECK(engine.driver.count(Function::cuGraphCreate) == 0);
  CHECK(engine.driver.count(Function::cuStreamQuery) == 1);  // nobody asks for more than the first that is at work
  engine.driver.go_on(default_stream(engine));
  engine.graph_room.make_where_idle();
  CHECK_FALSE(engine.graph_room.is_missing());
  CHECK(spare(engine) >= ExecutableStore::spare);
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 1);
  CHECK(engine.driver.count(Function::cuGraphAddMemsetNode) >= ExecutableStore::spare);
  CHECK(engine.slow_calls == 1);  // others go on meanwhile
  for (const Function maker : {Function::cuMemAlloc, Function::cuGraphCreate, Function::cuGraphInstantiateWithFlags})
    CHECK(engine.driver.alive(maker) == 0);
  // Another library's capture is not disturbed.
  CHECK(engine.driver.count(Function::cuThreadExchangeStreamCaptureMode) % 2 == 0);
  CHECK(engine.driver.misuses().empty());
  engine.driver.forget_calls();
  engine.graph_room.make_where_idle();
  CHECK(engine.driver.calls().empty());
}

TEST_CASE("an executable for which there is room leaves nothing to be made") {
  FakeEngine engine;
  const std::array<std::uint64_t, 1> places{3};
  for (int i = 0; i < 100; ++i) {
    engine.graph_room.prepare(places);
    engine.graph_room.take(places);
    CHECK_FALSE(engine.graph_room.is_missing());
  }
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) < 10);
}

TEST_CASE("each device gets room when it rests itself") {
  FakeEngine engine(2);
  make_while_busy(engine, {0, 1});
  engine.driver.go_on(default_stream(engine, 1));
  engine.graph_room.make_where_idle();
  CHECK(engine.graph_room.is_missing());
  CHECK(spare(engine, 0) < ExecutableStore::spare);
  CHECK(spare(engine, 1) >= ExecutableStore::spare);
  engine.driver.go_on(default_stream(engine, 0));
  engine.graph_room.make_where_idle();
  CHECK_FALSE(engine.graph_room.is_missing());
  CHECK(spare(engine, 0) >= ExecutableStore::spare);
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 2);
}

TEST_CASE("if the driver refuses room, nobody asks again before the next executable") {
  for (const Function refused : {Function::cuMemAlloc, Function::cuGraphCreate, Function::cuGraphAddMemsetNode,
                                 Function::cuGraphInstantiateWithFlags}) {
    FakeEngine engine;
    make_while_busy(engine, {0});
    engine.driver.go_on(default_stream(engine));
    engine.driver.refuse(refused);
    engine.graph_room.make_where_idle();
    CHECK_FALSE(engine.graph_room.is_missing());
    CHECK(spare(engine) < ExecutableStore::spare);
    for (const Function maker : {Function::cuMemAlloc, Function::cuGraphCreate, Function::cuGraphInstantiateWithFlags})
      CHECK(engine.driver.alive(maker) == 0);
    const std::array<std::uint64_t, 1> places{1};
    engine.graph_room.take(places);
    CHECK(engine.graph_room.is_missing());
    engine.graph_room.make_where_idle();
    CHECK(spare(engine) >= ExecutableStore::spare);
  }
}

TEST_CASE("a lost device gets no room, and others get theirs") {
  FakeEngine engine(2);
  make_while_busy(engine, {0, 1});
  engine.driver.break_stream(default_stream(engine, 0));
  engine.driver.go_on(default_stream(engine, 1));
  engine.graph_room.make_where_idle();
  CHECK_FALSE(engine.graph_room.is_missing());
  CHECK(spare(engine, 1) >= ExecutableStore::spare);
  CHECK(engine.driver.count(Function::cuGraphInstantiateWithFlags) == 1);
}

TEST_CASE("no room is made while calls are held back, while a stream is captured, or where the engine is over") {
  FakeEngine engine;
  make_while_busy(engine, {0});
  engine.driver.go_on(default_stream(engine));
  engine.now.note_held_back();
  engine.driver.forget_calls();
  engine.graph_room.make_where_idle();
  CHECK(engine.driver.calls().empty());
  engine.now.note_given();
  engine.driver.capture(default_stream(engine));
  engine.graph_room.make_where_idle();
  CHECK(engine.driver.count(Function::cuGraphCreate) == 0);
  engine.driver.capture(default_stream(engine), false);
  CHECK(engine.graph_room.is_missing());
  engine.fork();
  engine.driver.forget_calls();
  engine.graph_room.make_where_idle();
  CHECK(engine.driver.calls().empty());
}

TEST_CASE("executables that go while room is made do not count as room") {
  FakeEngine engine;
  ExecutableStore& store = engine.devices.at(0).executables;
  store.take(20);
  make_while_busy(engine, {0});
  engine.driver.go_on(default_stream(engine));
  const std::uint64_t before = store.missing(0);
  engine.during_slow_call = [&] {
    store.give_back(20);
    store.take(20);
  };
  engine.graph_room.make_where_idle();
  store.give_back(20);
  CHECK(spare(engine) == before);  // which were free at once when the 20 were gone
}
