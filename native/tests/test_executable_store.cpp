// When the driver's store for executables is to be enlarged, and by how much.
#include <doctest/doctest.h>

#include "driver/executable_store.hpp"

using aiocuda::driver::ExecutableStore;

namespace {
void enlarge(ExecutableStore& store, std::uint64_t places) {
  store.note_asked();
  store.note_free(places);
}
}  // namespace

TEST_CASE("a store asks for room before it is full, and not again once it has it") {
  ExecutableStore store;
  const auto missing = store.missing(1);
  CHECK(missing > ExecutableStore::spare);
  enlarge(store, missing);
  CHECK(store.missing(1) == 0);
  store.take(1);
  CHECK(store.missing(1) == 0);
}

TEST_CASE("what is free always covers the spare places, however many are taken one after another") {
  ExecutableStore store;
  int enlarged = 0;
  for (int taken = 0; taken < 1000; ++taken) {
    if (const auto missing = store.missing(1)) {
      enlarge(store, missing);
      ++enlarged;
    }
    CHECK(store.has(1 + ExecutableStore::spare));
    store.take(1);
  }
  CHECK(enlarged < 1000 / 40);  // each step serves many
}

TEST_CASE("what is given back is free again") {
  ExecutableStore store;
  enlarge(store, store.missing(10));
  store.take(10);
  store.give_back(10);
  for (int turn = 0; turn < 100; ++turn) {
    CHECK(store.missing(10) == 0);
    store.take(10);
    store.give_back(10);
  }
}

TEST_CASE("streams have places too, and keep them") {
  ExecutableStore store;
  enlarge(store, store.missing(1));
  store.note_streams(10);
  store.note_streams(4);
  store.note_streams(10);
  CHECK(store.missing(1) == 0);
  const auto spare = 1 + ExecutableStore::spare;
  store.note_streams(ExecutableStore::spare + 2);
  CHECK_FALSE(store.has(spare));
  enlarge(store, store.missing(1));
  CHECK(store.has(spare));
}

TEST_CASE("what was in use at once was there, though nobody asked for it") {
  ExecutableStore store;
  store.take(500);
  store.give_back(500);
  CHECK(store.has(500));
  CHECK(store.missing(500 - ExecutableStore::spare) == 0);
}
