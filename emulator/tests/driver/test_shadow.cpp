// The shadow of a launch by itself: which accesses of threads are ordered, and which races a granule remembers.
// Accesses come here in the order in which they are written down.
#include <doctest/doctest.h>

#include <limits>
#include <string_view>

#include "checking/shadow.hpp"

using namespace aiocuda::emulator::checking;
namespace abi = aiocuda::emulator::abi;

namespace {

constexpr std::uint32_t all_bytes = 15;
constexpr std::uintptr_t flag = 0x2000;

// One granule that the threads of two blocks touch.
struct Launch {
  Releases releases;
  BlockOrder blocks[2];
  Granule granule;
  Cell other;

  Launch() {
    for (std::uint32_t block = 0; block < 2; ++block) blocks[block].begin(block, 96);
  }
  bool races(std::uint32_t block, std::uint32_t thread, AccessKind kind, std::uint32_t bytes = all_bytes) {
    BlockOrder& order = blocks[block];
    order.note(thread, kind, 0x1000, releases);
    return touch(granule, order.cell(thread, kind, bytes, 7), order, releases, other);
  }
  void tell(std::uint32_t block, std::uint32_t thread) {
    blocks[block].note(thread, abi::access_atomic_write, flag, releases);
  }
  void hear(std::uint32_t block, std::uint32_t thread) {
    blocks[block].note(thread, abi::access_atomic_read, flag, releases);
  }
};

}  // namespace

TEST_CASE("two threads race where one writes and no barrier lies between") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 3, abi::access_write));
  CHECK_FALSE(launch.races(0, 3, abi::access_read));
  CHECK(launch.races(0, 40, abi::access_read));
  CHECK(std::uint64_t{launch.other.thread} == 3);
  CHECK(launch.other.access_kind() == abi::access_write);
  CHECK(launch.other.code == 7);
  launch.blocks[0].meet_block(launch.releases);
  CHECK_FALSE(launch.races(0, 41, abi::access_write));
  CHECK(launch.races(0, 42, abi::access_write));
}

TEST_CASE("reads and bytes that do not meet race with nobody") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 1, abi::access_write, 0b0011));
  CHECK_FALSE(launch.races(0, 2, abi::access_write, 0b1100));
  Launch readers;
  CHECK_FALSE(readers.races(0, 1, abi::access_read));
  CHECK_FALSE(readers.races(1, 1, abi::access_read));
  CHECK(readers.races(0, 2, abi::access_write));
}

TEST_CASE("lanes that meet are ordered, and only those") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 33, abi::access_write));
  launch.blocks[0].meet_lanes(1, 0b0111, launch.releases);  // threads 32 to 34
  CHECK_FALSE(launch.races(0, 34, abi::access_read));
  CHECK(launch.races(0, 35, abi::access_read));
  CHECK(launch.races(0, 64, abi::access_read));  // of another warp
}

TEST_CASE("a lane that met a lane knows what that one knew") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  launch.blocks[0].meet_lanes(0, 0b0011, launch.releases);
  launch.blocks[0].meet_lanes(0, 0b0110, launch.releases);
  CHECK_FALSE(launch.races(0, 2, abi::access_read));
  CHECK(launch.races(0, 3, abi::access_read));
}

TEST_CASE("atomic accesses do not race with each other, and do with plain ones") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 0, abi::access_atomic_write));
  CHECK_FALSE(launch.races(1, 0, abi::access_atomic_write));
  CHECK_FALSE(launch.races(1, 1, abi::access_atomic_read));
  CHECK(launch.races(0, 50, abi::access_write));
}

TEST_CASE("an atomic write stays in memory while somebody may race with it") {
  Launch launch;
  CHECK_FALSE(launch.races(1, 0, abi::access_atomic_write));
  CHECK_FALSE(launch.races(0, 0, abi::access_atomic_read));
  CHECK(launch.races(0, 50, abi::access_read));
  CHECK(launch.other.block == 1);
}

TEST_CASE("two unordered readers are both remembered") {
  for (const std::uint32_t writer : {0u, 1u}) {
    Launch launch;
    CHECK_FALSE(launch.races(0, 0, abi::access_read));
    CHECK_FALSE(launch.races(1, 0, abi::access_read));
    CHECK(launch.races(writer, 0, abi::access_write));
    CHECK(launch.other.block == 1 - writer);
  }
}

TEST_CASE("a fence and a flag order blocks") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  launch.blocks[0].fence(0);
  launch.tell(0, 0);
  CHECK(launch.races(1, 5, abi::access_read));  // before it looked
  launch.hear(1, 5);
  CHECK_FALSE(launch.races(1, 5, abi::access_read));
  CHECK(launch.races(1, 6, abi::access_read));  // which did not look
  launch.blocks[1].meet_block(launch.releases);
  CHECK_FALSE(launch.races(1, 6, abi::access_read));
}

TEST_CASE("what is told while a thread is on its way to read is heard") {
  // A thread is told of before it reads: between, another one may tell it what it then reads.
  for (const char* const met : {"itself", "its block", "its warp"}) {
    CAPTURE(met);
    Launch launch;
    CHECK_FALSE(launch.races(0, 0, abi::access_write));
    launch.hear(1, 5);
    launch.blocks[0].fence(0);
    launch.tell(0, 0);
    std::uint32_t reader = 5;
    if (met == std::string_view("its block")) {
      launch.blocks[1].meet_block(launch.releases);
      reader = 70;
    } else if (met == std::string_view("its warp")) {
      launch.blocks[1].meet_lanes(0, 0b110'0000, launch.releases);
      reader = 6;
    }
    CHECK_FALSE(launch.races(1, reader, abi::access_read));
  }
}

TEST_CASE("a flag without a fence, or with a plain write behind the fence, orders nothing") {
  for (const bool fences : {false, true}) {
    Launch launch;
    if (fences) launch.blocks[0].fence(0);
    CHECK_FALSE(launch.races(0, 0, abi::access_write));
    launch.tell(0, 0);
    launch.hear(1, 5);
    CHECK(launch.races(1, 5, abi::access_read));
  }
}

TEST_CASE("what a block did after it told others is not known to them") {
  Launch launch;
  launch.blocks[0].fence(0);
  launch.tell(0, 0);
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  launch.hear(1, 5);
  CHECK(launch.races(1, 5, abi::access_read));
}

TEST_CASE("a barrier carries fences and news to all threads of the block") {
  Launch launch;
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  launch.blocks[0].fence(0);
  launch.blocks[0].meet_block(launch.releases);
  launch.tell(0, 70);
  launch.hear(1, 5);
  CHECK_FALSE(launch.races(1, 5, abi::access_read));
}

TEST_CASE("releases are numbered over the launch") {
  Releases releases;
  CHECK(releases.acquire(flag) == 0);
  CHECK(releases.release(4, 0, flag) == 1);
  CHECK(releases.release(5, 0, flag + 4) == 2);
  CHECK(releases.acquire(flag) == 1);
  CHECK(releases.acquire(flag + 8) == 0);
  CHECK(releases.number_of(5, 0) == 2);
  CHECK(releases.number_of(5, 1) == std::numeric_limits<std::uint64_t>::max());
  CHECK(releases.number_of(6, 0) == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("more barriers than a cell can count order everything") {
  Launch launch;
  launch.blocks[0].begin(0, 2);
  for (std::uint32_t each = 0; each < most_barriers - 1; ++each) launch.blocks[0].meet_block(launch.releases);
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  CHECK(launch.races(0, 1, abi::access_write));
  launch.blocks[0].meet_block(launch.releases);
  CHECK_FALSE(launch.races(0, 0, abi::access_write));
  CHECK_FALSE(launch.races(0, 1, abi::access_write));  // nobody knows: no false alarm
}

TEST_CASE("a page of the shadow is one object until all blocks have met") {
  GlobalShadow shadow;
  GlobalShadow::Page* const page = shadow.page(17);
  REQUIRE(page != nullptr);
  CHECK(shadow.page(17) == page);
  CHECK(shadow.page(18) != page);
  page->granules[3].cells[0].bytes = all_bytes;
  shadow.clear();
  CHECK(shadow.page(17) == page);
  CHECK(std::uint64_t{page->granules[3].cells[0].bytes} == 0);
}
