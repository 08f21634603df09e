// A list whose header has 16 bytes.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "dataflow/compact.hpp"

using aiocuda::dataflow::Compact;

namespace {

std::vector<int> items(const Compact<int>& compact) { return {compact.begin(), compact.end()}; }

Compact<int> of(int count) {
  Compact<int> made;
  for (int i = 0; i < count; ++i) made.push_back(i);
  return made;
}

}  // namespace

TEST_CASE("a compact list has 16 bytes beside its items, which come in their order") {
  static_assert(sizeof(Compact<int>) == 16);
  Compact<int> compact;
  CHECK(compact.empty());
  CHECK(compact.begin() == compact.end());
  std::vector<int> added;
  for (int i = 0; i < 20; ++i) {
    compact.push_back(i);
    added.push_back(i);
    CHECK(items(compact) == added);
    CHECK(compact.size() == added.size());
  }
  compact.clear();
  CHECK(compact.empty());
  while (compact.size() < 13) compact.push_back(compact.empty() ? 1 : compact[0]);
  CHECK(items(compact) == std::vector<int>(13, 1));
}

TEST_CASE("what was reserved is not moved") {
  Compact<int> compact;
  compact.reserve(5);
  const int* const before = compact.begin();
  for (int i = 0; i < 5; ++i) compact.push_back(i);
  CHECK(compact.begin() == before);
  compact.reserve(3);
  CHECK(compact.begin() == before);
  CHECK(items(compact) == items(of(5)));
}

TEST_CASE("a copy of a compact list has items of its own, and a moved one has given its own away") {
  Compact<int> compact = of(4);
  const Compact<int> copy = compact;
  Compact<int> assigned = of(9);
  assigned = compact;
  compact[0] = 8;
  CHECK(items(copy) == items(of(4)));
  CHECK(items(assigned) == items(of(4)));
  const Compact<int> moved = std::exchange(assigned, {});
  CHECK(items(moved) == items(of(4)));
  CHECK(assigned.empty());
  assigned.assign(copy.begin(), copy.end());
  CHECK(items(assigned) == items(of(4)));
}
