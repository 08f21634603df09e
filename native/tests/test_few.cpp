// A list whose first item needs no memory of its own.
#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <vector>

#include "few.hpp"

using aiocuda::Few;

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

TEST_CASE("what is erased is gone, and the others keep their order") {
  for (int erased = 0; erased < 3; ++erased) {
    Few<std::unique_ptr<int>> few;
    std::vector<int> left;
    for (int i = 0; i < 3; ++i) {
      few.push_back(std::make_unique<int>(i));
      if (i != erased) left.push_back(i);
    }
    few.erase(few.begin() + erased);
    CHECK(items(few) == left);
    few.push_back(std::make_unique<int>(7));
    left.push_back(7);
    CHECK(items(few) == left);
  }
  Few<int> one;
  one.push_back(3);
  one.erase(one.begin());
  CHECK(one.empty());
}
