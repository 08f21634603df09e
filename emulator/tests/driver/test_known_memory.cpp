// What the checks know of memory, by itself: which bytes are written, and what an address belonged to.
#include <doctest/doctest.h>

#include "checking/known_memory.hpp"

using namespace aiocuda::emulator::checking;

namespace {

constexpr std::uintptr_t base = 0x10000;

}  // namespace

TEST_CASE("each byte of given memory is written or not") {
  GivenMemory memory(base, 200, "an array", true);
  CHECK_FALSE(memory.is_written(base, base + 1));
  memory.note_write(base + 60, base + 70);  // across a word of 64 bits
  CHECK(memory.is_written(base + 60, base + 70));
  CHECK_FALSE(memory.is_written(base + 59, base + 61));
  CHECK_FALSE(memory.is_written(base + 69, base + 71));
  CHECK_FALSE(memory.is_written(base + 28, base + 38));  // as far into half a word
  memory.note_write(base, base + 200);
  CHECK(memory.is_written(base, base + 200));
  memory.forget_writes();
  CHECK_FALSE(memory.is_written(base + 60, base + 61));
}

TEST_CASE("whole words are written at once, and the last bytes too") {
  GivenMemory memory(base, 130, "an array", true);
  memory.note_write(base + 64, base + 128);
  CHECK(memory.is_written(base + 64, base + 128));
  CHECK_FALSE(memory.is_written(base + 63, base + 64));
  CHECK_FALSE(memory.is_written(base + 128, base + 129));
  memory.note_write(base + 128, base + 1000);  // its end is the array's
  CHECK(memory.is_written(base + 128, base + 1000));
}

TEST_CASE("where nobody asks for writes, all is written") {
  GivenMemory memory(base, 64, "an array", false);
  CHECK(memory.is_written(base, base + 64));
  memory.note_write(base, base + 1);
  memory.forget_writes();
  CHECK(memory.is_written(base, base + 64));
}

TEST_CASE("a list finds what an address is in, and its neighbours") {
  KnownMemory known;
  known.add(base + 0x200, 0x80, "the second", false);
  known.add(base, 0x100, "the first", false);
  const std::shared_ptr<const MemoryList> list = known.list();
  REQUIRE(list->find(base) != nullptr);
  CHECK(list->find(base)->text == "the first");
  CHECK(list->find(base + 0xff)->text == "the first");
  CHECK(list->find(base + 0x100) == nullptr);
  CHECK(list->find(base - 1) == nullptr);
  CHECK(list->find(base + 0x27f)->text == "the second");
  CHECK(list->find(base + 0x280) == nullptr);
  CHECK(list->before(base - 1) == nullptr);
  CHECK(list->before(base + 0x150)->text == "the first");
  CHECK(list->behind(base + 0x150)->text == "the second");
  CHECK(list->behind(base + 0x200) == nullptr);
}

TEST_CASE("a list stays as it was when it was taken") {
  KnownMemory known;
  known.add(base, 0x100, "an array", false);
  const std::shared_ptr<const MemoryList> earlier = known.list();
  CHECK(known.list() == earlier);
  known.remove(base);
  CHECK(earlier->find(base) != nullptr);
  CHECK(known.list()->find(base) == nullptr);
}

TEST_CASE("what was freed last at an address is told") {
  KnownMemory known;
  CHECK(known.freed_at(base).empty());
  known.add(base, 0x100, "the first", false);
  known.remove(base);
  known.add(base, 0x40, "the second", false);
  CHECK(known.freed_at(base + 8) == "offset 8 of the first");
  known.remove(base);
  CHECK(known.freed_at(base + 8) == "offset 8 of the second");
  CHECK(known.freed_at(base + 0x80) == "offset 128 of the first");
  CHECK(known.freed_at(base + 0x100).empty());
  known.remove(base + 0x5000);  // which was never given
}

TEST_CASE("the maker of memory is known until other memory lies there") {
  KnownMemory known;
  known.add(base, 0x100, "an array", false);
  CHECK(known.maker(base).empty());
  known.describe(base, "program.py:3");
  CHECK(known.maker(base) == "program.py:3");
  known.add(base, 0x80, "another array", false);
  CHECK(known.maker(base).empty());
}

TEST_CASE("the list in force is the innermost") {
  const auto outer = std::make_shared<const MemoryList>(std::vector<std::shared_ptr<GivenMemory>>{});
  const auto inner = std::make_shared<const MemoryList>(std::vector<std::shared_ptr<GivenMemory>>{});
  CHECK(list_in_force() == nullptr);
  {
    const ListInForce one(outer);
    {
      const ListInForce two(inner);
      CHECK(list_in_force() == inner);
    }
    CHECK(list_in_force() == outer);
  }
  CHECK(list_in_force() == nullptr);
}
