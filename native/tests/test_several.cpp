// A list whose first items need no memory of their own.
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "dataflow/several.hpp"

using aiocuda::dataflow::Several;

namespace {

std::vector<int> items(const Several<int, 3>& several) { return {several.begin(), several.end()}; }

}  // namespace

TEST_CASE("several items come in the order in which they were added, inside of the list and beyond it") {
  Several<int, 3> several;
  CHECK(several.empty());
  std::vector<int> added;
  for (int i = 0; i < 20; ++i) {
    several.push_back(i);
    added.push_back(i);
    CHECK(items(several) == added);
    CHECK(several[several.size() - 1] == i);
  }
  several.clear();
  CHECK(several.empty());
  several.push_back(7);
  CHECK(items(several) == std::vector<int>{7});
}

TEST_CASE("an item of the list itself may be added, also when the list moves") {
  Several<int, 3> several;
  several.push_back(1);
  while (several.size() < 13) several.push_back(several[0]);
  CHECK(items(several) == std::vector<int>(13, 1));
}

TEST_CASE("items are put between others") {
  Several<int, 3> several;
  for (const int each : {5, 3, 4, 1, 2}) {
    std::size_t at = several.size();
    while (at > 0 && several[at - 1] > each) --at;
    several.insert(at, each);
  }
  CHECK(items(several) == std::vector<int>{1, 2, 3, 4, 5});
}

TEST_CASE("the first items lie in the list itself") {
  Several<int, 3> several;
  for (const int each : {1, 2, 3}) several.push_back(each);
  const auto* const first = reinterpret_cast<const char*>(several.begin());
  const auto* const list = reinterpret_cast<const char*>(&several);
  CHECK((first >= list && first < list + sizeof several));
}

TEST_CASE("items are erased, inside of the list and beyond it") {
  for (const int count : {3, 8}) {
    for (int first = 0; first <= count; ++first) {
      for (int last = first; last <= count; ++last) {
        Several<int, 3> several;
        std::vector<int> left;
        for (int i = 0; i < count; ++i) {
          several.push_back(i);
          if (i < first || i >= last) left.push_back(i);
        }
        several.erase(several.begin() + first, several.begin() + last);
        CHECK(items(several) == left);
      }
    }
  }
}

TEST_CASE("a copy has items of its own, and what is moved from is empty") {
  for (const int count : {0, 2, 7}) {
    Several<int, 3> several;
    for (int i = 0; i < count; ++i) several.push_back(i);
    const std::vector<int> before = items(several);
    const Several<int, 3> copy = several;
    Several<int, 3> assigned;
    for (int i = 0; i < 5; ++i) assigned.push_back(9);
    assigned = several;
    Several<int, 3> source = several;
    const Several<int, 3> moved = std::move(source);
    Several<int, 3> given;
    for (int i = 0; i < 5; ++i) given.push_back(9);
    given = Several<int, 3>(several);
    source.push_back(6);  // NOLINT(bugprone-use-after-move): it is empty, and may be used
    CHECK(items(source) == std::vector<int>{6});
    CHECK(items(moved) == before);
    CHECK(items(given) == before);
    several.push_back(7);
    if (count) several[0] = 8;
    CHECK(items(copy) == before);
    CHECK(items(assigned) == before);
  }
}
