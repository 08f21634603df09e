// How a test of a protocol runs its program in all orders, and says how many there were.
#pragma once
#include <doctest/doctest.h>

#include "scheduler.hpp"

namespace aiocuda::model {

inline void check_orders(const std::function<void()>& program, const Limits& limits) {
  const Found found = explore(program, limits);
  CHECK(found.failure == "");
  CHECK(found.orders > 1);
  MESSAGE(found.orders << " orders");
}

}  // namespace aiocuda::model
