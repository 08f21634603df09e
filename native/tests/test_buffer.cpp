#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dataflow/buffer.hpp"

using namespace aiocuda::dataflow;

namespace {

struct Keeper final : MemoryOwner {
  std::vector<std::unique_ptr<Buffer>> returned;
  void take_back(std::unique_ptr<Buffer> buffer) noexcept override { returned.push_back(std::move(buffer)); }
};

std::unique_ptr<Buffer> buffer_of(MemoryOwner& owner, std::uint64_t address) {
  auto buffer = std::make_unique<Buffer>(64);
  buffer->owner = &owner;
  buffer->address = address;
  return buffer;
}

}  // namespace

TEST_CASE("a buffer goes back once, when the last holder lets go, with its hazards") {
  Keeper keeper;
  {
    BufferRef first(buffer_of(keeper, 64));
    first->hazards.commit({0, 64}, true, {2, 7});
    BufferRef second = first;
    first.reset();
    CHECK(keeper.returned.empty());
    const BufferRef third = std::move(second);
    CHECK(third.get() != nullptr);
    CHECK(second.get() == nullptr);
  }
  REQUIRE(keeper.returned.size() == 1);
  keeper.returned[0]->hazards.each([](const Hazard& hazard, Span) { CHECK(hazard.written.count == 7); });
}

TEST_CASE("assigning over a holder lets go of what it held") {
  Keeper keeper;
  BufferRef holder(buffer_of(keeper, 64));
  holder = BufferRef(buffer_of(keeper, 128));
  REQUIRE(keeper.returned.size() == 1);
  CHECK(keeper.returned[0]->address == 64);
  BufferRef& same = holder;
  holder = same;
  CHECK(keeper.returned.size() == 1);
}

TEST_CASE("a buffer of nothing, or of nobody, goes back to nobody") {
  Keeper keeper;
  {
    BufferRef empty(buffer_of(keeper, 0));
  }
  {
    BufferRef borrowed(std::make_unique<Buffer>());
  }
  CHECK(keeper.returned.empty());
}
