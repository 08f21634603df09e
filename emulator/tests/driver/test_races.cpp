// The checker of races by itself: what orders two operations and what does not, decided by clocks alone. Operations
// run here in the order in which they are written down, on one thread, so nothing depends on time.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "checking/checker.hpp"

using namespace aiocuda::emulator::checking;
namespace abi = aiocuda::emulator::abi;

namespace {

constexpr std::uintptr_t memory = 0x10000;

Access read(std::uintptr_t offset, std::size_t bytes) {
  return {memory + offset, memory + offset + bytes, abi::access_read};
}
Access write(std::uintptr_t offset, std::size_t bytes) {
  return {memory + offset, memory + offset + bytes, abi::access_write};
}
Access renew(std::uintptr_t offset, std::size_t bytes) {
  return {memory + offset, memory + offset + bytes, abi::access_write, true};
}
Access update(std::uintptr_t offset, std::size_t bytes) {
  return {memory + offset, memory + offset + bytes, abi::access_atomic_write};
}
Access watch(std::uintptr_t offset, std::size_t bytes) {
  return {memory + offset, memory + offset + bytes, abi::access_atomic_read};
}

class TestStream {
 public:
  explicit TestStream(Checker& checker) : lane_(checker.open_lane(0xabc0, "a test's")) {}
  Point submit(std::string text, std::vector<Point> after = {}) {
    return lane_->submit(std::move(text), std::move(after));
  }
  void begin(const Point& point, Ordering ordering = {}) { lane_->begin(*point, ordering); }
  void run(const Point& point, Accesses accesses, Ordering ordering = {}) {
    begin(point, ordering);
    lane_->end(point, ordering, accesses);
  }
  Point operate(std::string text, Accesses accesses, std::vector<Point> after = {}, Ordering ordering = {}) {
    const Point point = submit(std::move(text), std::move(after));
    run(point, std::move(accesses), ordering);
    return point;
  }

 private:
  std::unique_ptr<Checker::Lane> lane_;
};

std::string take(Checker& checker) {
  std::string text(checker.take_reports(nullptr, 0), ' ');
  CHECK(checker.take_reports(text.data(), text.size()) == text.size());
  return text;
}

std::size_t count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("read after write, write after read and write after write race between two streams, reads do not") {
  Checker checker;
  TestStream one(checker), two(checker);
  checker.allocated(memory, 4096, 4096);
  SUBCASE("read after write") {
    one.operate("W", {write(0, 64)});
    two.operate("R", {read(32, 64)});
    const std::string text = take(checker);
    CHECK(count(text) == 1);
    CHECK(has(text, "\"first\": \"W\", \"second\": \"R\""));
    CHECK(has(text, "the first writes and the second reads 32 bytes"));
    CHECK(has(text, "offset 32 of an allocation of 4096 bytes"));
    CHECK(has(text, "after W, stream 2 never waited for stream 1"));
    CHECK(has(text, "\"begin\": 65568, \"end\": 65600"));
    CHECK(has(text, "\"first_stream_number\": 1, \"first_stream_handle\": 43968"));
  }
  SUBCASE("write after read") {
    one.operate("R", {read(0, 64)});
    two.operate("W", {write(0, 4)});
    CHECK(has(take(checker), "the first reads and the second writes 4 bytes"));
  }
  SUBCASE("write after write") {
    one.operate("W", {write(0, 64)});
    two.operate("V", {write(63, 2)});
    CHECK(has(take(checker), "both write 1 byte"));
  }
  SUBCASE("reads") {
    one.operate("R", {read(0, 64)});
    two.operate("S", {read(0, 64)});
    CHECK(take(checker).empty());
  }
  SUBCASE("disjoint bytes") {
    one.operate("W", {write(0, 64), write(128, 64)});
    two.operate("V", {write(64, 64), read(192, 4)});
    CHECK(take(checker).empty());
  }
  SUBCASE("one stream") {
    one.operate("W", {write(0, 64)});
    one.operate("V", {write(0, 64), read(0, 64)});
    CHECK(take(checker).empty());
  }
}

TEST_CASE("a report is taken once, and only where there is room for it") {
  Checker checker;
  TestStream one(checker), two(checker);
  one.operate("W \"quoted\"\n", {write(0, 4)});
  two.operate("V", {write(0, 4)});
  char small[4] = {'x', 'x', 'x', 'x'};
  const std::size_t needed = checker.take_reports(small, 4);
  CHECK(needed > 4);
  CHECK(small[0] == 'x');
  const std::string text = take(checker);
  CHECK(text.size() == needed);
  CHECK(has(text, "W \\\"quoted\\\"\\u000a"));
  CHECK(take(checker).empty());
}

TEST_CASE("it does not matter in which order racing operations happen to run") {
  for (const bool second_runs_first : {false, true}) {
    Checker checker;
    TestStream one(checker), two(checker);
    const Point a = one.submit("A"), b = two.submit("B");
    if (second_runs_first) two.run(b, {write(0, 8)});
    one.run(a, {read(0, 8)});
    if (!second_runs_first) two.run(b, {write(0, 8)});
    const std::string text = take(checker);
    CHECK(count(text) == 1);
    CHECK(has(text, "\"first\": \"A\", \"second\": \"B\""));
    CHECK(has(text, "the first reads and the second writes"));
  }
}

TEST_CASE("a wait for a point orders all before the point, through other streams, too") {
  Checker checker;
  TestStream one(checker), two(checker), three(checker);
  one.operate("W", {write(0, 64)});
  const Point event = one.operate("", {});
  one.operate("late", {write(64, 64)});
  SUBCASE("directly") {
    two.operate("", {}, {event});
    two.operate("V", {write(0, 64)});
    CHECK(take(checker).empty());
  }
  SUBCASE("through a third stream") {
    const Point relay = three.operate("", {}, {event});
    two.operate("V", {write(0, 64)}, {relay});
    CHECK(take(checker).empty());
  }
  SUBCASE("but nothing behind the point") {
    two.operate("V", {write(0, 128)}, {event});
    const std::string text = take(checker);
    CHECK(count(text) == 1);
    CHECK(has(text, "\"first\": \"late\""));
  }
  SUBCASE("and not what a stream does that did not wait") {
    two.operate("V", {}, {event});
    three.operate("X", {read(0, 1)});
    CHECK(has(take(checker), "after W, stream 3 never waited for stream 1"));
  }
}

TEST_CASE("a wait that is submitted before its event's work has run takes the order when it ends") {
  Checker checker;
  TestStream one(checker), two(checker);
  const Point w = one.submit("W"), event = one.submit("");
  const Point wait = two.submit("", {event}), v = two.submit("V");
  const Ordering none;
  // As in the driver: the wait begins, blocks, and ends behind the event.
  one.run(w, {write(0, 8)});
  one.run(event, {});
  two.run(wait, {}, none);
  two.run(v, {write(0, 8)});
  CHECK(take(checker).empty());
}

TEST_CASE(
    "what the host submits after it has observed a point is ordered after it, what it has submitted before is not") {
  Checker checker;
  TestStream one(checker), two(checker);
  const Point before = two.submit("before");
  const Point w = one.operate("W", {write(0, 8)});
  SUBCASE("without an observation: that it has ended is not enough") {
    two.run(before, {});
    two.operate("V", {write(0, 8)});
    CHECK(count(take(checker)) == 1);
  }
  SUBCASE("observed") {
    checker.observe(w);
    two.run(before, {});
    two.operate("V", {write(0, 8)});
    CHECK(take(checker).empty());
  }
  SUBCASE("submitted before") {
    checker.observe(w);
    two.run(before, {write(0, 8)});
    CHECK(count(take(checker)) == 1);
  }
  SUBCASE("a point that has not ended cannot be observed") {
    const Point later = one.submit("later");
    checker.observe(later);
    one.begin(later);
    checker.observe(later);
    two.run(before, {});
    two.operate("V", {write(0, 8)});
    CHECK(count(take(checker)) == 1);
  }
}

TEST_CASE("a host function tells the host of all before it, from when it begins") {
  Checker checker;
  TestStream one(checker), two(checker);
  one.operate("W", {write(0, 8)});
  const Point function = one.submit("");
  one.run(function, {}, {.tells_host = true});
  two.operate("V", {write(0, 8)});
  CHECK(take(checker).empty());
}

TEST_CASE("a value written and waited for orders, an address apart does not") {
  Checker checker;
  TestStream one(checker), two(checker);
  one.operate("W", {write(0, 8)});
  one.operate("a write of a value", {update(256, 4)}, {}, {.releases = memory + 256});
  const std::uintptr_t waited_for = memory + 256;
  SUBCASE("the same address") {
    two.operate("a wait for a value", {watch(256, 4)}, {}, {.acquires = waited_for});
    two.operate("V", {write(0, 8)});
    CHECK(take(checker).empty());
  }
  SUBCASE("another") {
    two.operate("a wait for a value", {watch(260, 4)}, {}, {.acquires = waited_for + 4});
    two.operate("V", {write(0, 8)});
    CHECK(count(take(checker)) == 1);
  }
}

TEST_CASE("two atomic accesses never race, an atomic and a plain one do") {
  Checker checker;
  TestStream one(checker), two(checker), three(checker);
  one.operate("A", {update(0, 4)});
  two.operate("B", {update(0, 4), watch(0, 4)});
  CHECK(take(checker).empty());
  three.operate("R", {read(0, 4)});
  CHECK(count(take(checker)) == 2);
  TestStream four(checker);
  four.operate("L", {watch(0, 4)});
  CHECK(take(checker).empty());
  four.operate("W", {write(0, 4)});
  CHECK(count(take(checker)) == 3);
}

TEST_CASE("a use before the allocation or after the free races, memory given out anew has no past") {
  Checker checker;
  TestStream one(checker), two(checker);
  checker.allocated(memory, 64, 64);
  const Point allocation = one.operate("the allocation of 64 bytes", {write(0, 64)});
  SUBCASE("before the allocation") {
    two.operate("V", {write(0, 4)});
    CHECK(has(take(checker), "\"first\": \"the allocation of 64 bytes\""));
  }
  SUBCASE("after the free") {
    two.operate("V", {write(0, 4)}, {allocation});
    one.operate("the free of 64 bytes", {write(0, 64)});
    CHECK(has(take(checker), "\"second\": \"the free of 64 bytes\""));
  }
  SUBCASE("given to another stream by a driver that knows that the free has passed") {
    one.operate("the free of 64 bytes", {write(0, 64)});
    checker.freed_in_stream(memory);
    checker.allocated(memory, 64, 64);
    two.operate("the allocation of 64 bytes", {write(0, 64)});
    two.operate("V", {write(0, 64)});
    CHECK(take(checker).empty());
  }
  SUBCASE("a use after the free, when another stream has it already") {
    one.operate("the free of 64 bytes", {write(0, 64)});
    checker.freed_in_stream(memory);
    checker.allocated(memory, 64, 64);
    two.operate("the allocation of 64 bytes", {write(0, 64)});
    one.operate("use after free", {read(0, 1)});
    CHECK(has(take(checker), "\"second\": \"use after free\""));
  }
  SUBCASE("in the order of one stream the uses before the free stay known") {
    const Point late = two.submit("V", {allocation});
    one.operate("the free of 64 bytes", {write(0, 64)});
    checker.freed_in_stream(memory);
    checker.allocated(memory, 64, 0);
    one.operate("the allocation of 64 bytes", {write(0, 64)});
    two.run(late, {read(0, 4)});
    CHECK(count(take(checker)) == 1);
  }
  SUBCASE("freed by the host, which has not waited for all") {
    const Point v = two.operate("V", {read(0, 4)}, {allocation});
    checker.freed_by_host(memory, 64, "cuMemFree");
    const std::string text = take(checker);
    CHECK(has(text, "\"first\": \"V\", \"second\": \"cuMemFree\""));
    CHECK(has(text, "the host never waited for stream 2"));
    CHECK(checker.remembered_ranges() == 0);
  }
  SUBCASE("freed by the host, which has") {
    checker.observe(two.operate("V", {read(0, 4)}, {allocation}));
    checker.freed_by_host(memory, 64, "cuMemFree");
    CHECK(take(checker).empty());
  }
}

TEST_CASE("one mistake with freed memory is not told again of the memory's next life") {
  Checker checker;
  TestStream one(checker), two(checker);
  checker.allocated(memory, 64, 64);
  const Point allocation = one.operate("the allocation of 64 bytes", {renew(0, 64)});
  two.operate("V", {write(0, 4)}, {allocation});
  one.operate("the free of 64 bytes", {renew(0, 64)});
  CHECK(count(take(checker)) == 1);
  checker.allocated(memory, 64, 0);
  one.operate("the allocation of 64 bytes", {renew(0, 64)});
  one.operate("W", {write(0, 64)});
  CHECK(take(checker).empty());
}

TEST_CASE("memory has no past even where less of it was asked for in between") {
  Checker checker;
  TestStream one(checker), two(checker);
  checker.allocated(memory, 24, 256);
  one.operate("the allocation of 24 bytes", {renew(0, 24)});
  one.operate("the free of 24 bytes", {renew(0, 24)});
  checker.allocated(memory, 8, 256);
  two.operate("the allocation of 8 bytes", {renew(0, 8)});
  two.operate("the free of 8 bytes", {renew(0, 8)});
  checker.allocated(memory, 24, 0);
  two.operate("the allocation of 24 bytes", {renew(0, 24)});
  CHECK(take(checker).empty());
}

TEST_CASE("many ranges of one pair are one report") {
  Checker checker;
  TestStream one(checker), two(checker);
  Accesses columns;
  for (std::uintptr_t row = 0; row < 10; ++row) columns.push_back(write(row * 100, 4));
  one.operate("columns", columns);
  two.operate("all", {read(0, 1000)});
  const std::string text = take(checker);
  CHECK(count(text) == 1);
  CHECK(has(text, "40 bytes in 10 ranges"));
}

TEST_CASE("reports beyond a thousand are counted and not kept") {
  Checker checker;
  TestStream one(checker);
  one.operate("W", {write(0, 4)});
  for (int each = 0; each < 1010; ++each) {
    TestStream other(checker);
    other.operate("R", {read(0, 4)});
  }
  const std::string text = take(checker);
  CHECK(count(text) == 1000);
  CHECK(has(text, "(and 10 races more, not listed)"));
}

TEST_CASE("what everybody is ordered after is forgotten, however long a program runs") {
  Checker checker;
  TestStream one(checker), two(checker);
  for (std::uintptr_t each = 0; each < 20'000; ++each) {
    const Point point = one.operate("W", {write(each * 8, 4)});
    if (each % 100 == 99) checker.observe(point);
  }
  CHECK(checker.remembered_ranges() < 10'000);
  // Work that is still to run, and was submitted before it all, is not forgotten.
  Checker other;
  TestStream three(other), four(other);
  const Point early = four.submit("early");
  for (std::uintptr_t each = 0; each < 20'000; ++each) other.observe(three.operate("W", {write(each * 8, 4)}));
  four.run(early, {read(0, 4)});
  CHECK(count(take(other)) == 1);
}

TEST_CASE("a stream made when another is gone does not inherit its order") {
  Checker checker;
  TestStream one(checker);
  one.operate("W", {write(0, 4)});
  Point unobserved;
  {
    TestStream gone(checker);
    unobserved = gone.operate("G", {write(64, 4)});
  }
  SUBCASE("nobody has observed its work") {
    TestStream next(checker);
    next.operate("N", {write(64, 4)});
    CHECK(has(take(checker), "\"first\": \"G\", \"second\": \"N\""));
  }
  SUBCASE("its lane is used again once somebody has") {
    checker.observe(unobserved);
    TestStream next(checker);
    next.operate("N", {write(64, 4)});
    CHECK(take(checker).empty());
    next.operate("M", {write(0, 4)});
    CHECK(has(take(checker), "\"first\": \"W\", \"second\": \"M\""));
  }
}
