// A list whose first item needs no memory of its own.
#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <vector>

#include "dataflow/few.hpp"

using aiocuda::dataflow::Few;

namespace {

std::vector<int> items(const Few<std::unique_ptr<int>>& few) {
  std::vector<int> found;
  for (const auto& item : few) found.push_back(*item);
  return found;
}

}  // namespace

TEST_CASE("a few items come in the order in which they were added") {
  Few<std::unique_ptr<int>> few;
  CHECK(few.empty());
  CHECK(few.begin() == few.end());
  std::vector<int> added;
  for (int i = 0; i < 5; ++i) {
    few.push_back(std::make_unique<int>(i));
    added.push_back(i);
    CHECK(items(few) == added);
    CHECK(few.size() == added.size());
    CHECK(std::span<const std::unique_ptr<int>>(few).size() == added.size());
  }
  CHECK(*few.front() == 0);
  few.clear();
  CHECK(few.empty());
  few.push_back(std::make_unique<int>(7));
  CHECK(items(few) == std::vector<int>{7});
}

TEST_CASE("the only item lies in the list itself") {
  Few<int> few;
  few.push_back(3);
  const auto* const first = reinterpret_cast<const char*>(&few.front());
  const auto* const list = reinterpret_cast<const char*>(&few);
  CHECK((first >= list && first < list + sizeof few));
}
