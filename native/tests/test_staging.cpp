// Layouts, and the threads that carries bytes through rings; threads of the test are the device's streams (run under
// ThreadSanitizer).
#include <doctest/doctest.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "staging/copy_threads.hpp"

using namespace aiocuda::staging;

namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(std::size_t size, unsigned seed = 1) {
  Bytes bytes(size);
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

HostLayout flat(Bytes& bytes) { return {bytes.data(), {static_cast<std::int64_t>(bytes.size())}, {1}, 1}; }

// The bytes of a layout, one item after another.
Bytes packed_slowly(const std::byte* first, const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& strides, std::size_t item) {
  Bytes packed;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* at = first;
    std::int64_t rest = i;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      at += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    packed.insert(packed.end(), at, at + item);
  }
  return packed;
}

// A stream: does what it is given, in order, in its own time.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    put([this] { is_over_ = true; });
    thread_.join();
  }
  void put(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }
  void wait(const std::uint32_t* word, std::uint32_t number) {
    put([word, number] {
      while (!has_reached(read_word(word), number)) std::this_thread::yield();
    });
  }
  void write(std::uint32_t* word, std::uint32_t number) {
    put([word, number] { write_word(word, number); });
  }
  void drain() {
    std::atomic<bool> is_done{false};
    put([&] { is_done = true; });
    while (!is_done) std::this_thread::yield();
  }

 private:
  void run() {
    while (!is_over_) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !work_.empty(); });
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool is_over_ = false;
  std::thread thread_;
};

// Its memory outlives the threads.
struct LockedRing {
  Bytes memory;
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(3 * Words::stride, 0);
  Ring* ring = nullptr;
  Stream* last = nullptr;
  explicit LockedRing(std::size_t size) : memory(size) {}
  void join(CopyThreads& threads) { ring = threads.add_ring(memory, {words.data()}); }
};

// The driver floor's work for a copy, on a stream of the test's.
struct Copies {
  CopyThreads& threads;
  bool is_helping = false;  // who hands over carries what it can

  TransferRef carry(Stream& stream, LockedRing& ring, HostLayout host, Bytes& device, Way way, std::size_t chunk) {
    const Words words = ring.ring->words();
    if (ring.last != &stream) stream.wait(words.passed(), ring.ring->last_number());
    ring.last = &stream;
    const auto [transfer, parts] = threads.hand_over(*ring.ring, std::move(host), way, chunk);
    threads.call(*transfer, nullptr);
    for (const auto [number, packed, begin, bytes] : parts) {
      if (is_helping && way == Way::fill) threads.carry_now(*ring.ring, number);
      stream.wait(words.granted(), number);
      std::byte* there = device.data() + begin;
      if (way == Way::fill) {
        stream.put([there, from = packed, size = bytes] { std::memcpy(there, from, size); });
      } else {
        stream.put([there, to = packed, size = bytes] { std::memcpy(to, there, size); });
      }
      stream.write(words.passed(), number);
    }
    if (way == Way::drain) stream.wait(words.finished(), ring.ring->last_number());
    return transfer;
  }
};

void wait_for_end(const TransferRef& transfer) {
  while (!transfer->has_ended()) std::this_thread::yield();
}

constexpr std::size_t mib = 1 << 20;

}  // namespace

TEST_CASE("any part of any layout is packed and unpacked as if item by item") {
  std::mt19937 random(7);
  auto up_to = [&](int most) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1)); };
  for (int round = 0; round < 400; ++round) {
    constexpr std::int64_t sizes[] = {1, 2, 3, 4, 8, 16};
    const std::int64_t item = sizes[up_to(5)];
    std::vector<std::int64_t> shape, strides;
    std::int64_t step = item, begin = 0;
    std::vector<std::size_t> order(static_cast<std::size_t>(up_to(4)));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    shape.resize(order.size());
    strides.resize(order.size());
    for (const std::size_t axis : order) {  // from the fastest: in any order, with gaps, backwards
      shape[axis] = 1 + up_to(5);
      strides[axis] = step * (up_to(3) ? 1 : 2);
      step = strides[axis] * shape[axis];
      if (up_to(3)) continue;
      begin += (shape[axis] - 1) * strides[axis];
      strides[axis] = -strides[axis];
    }
    Bytes memory = numbered(static_cast<std::size_t>(step + item), static_cast<unsigned>(round));
    const HostLayout layout(memory.data() + begin, shape, strides, static_cast<std::uint64_t>(item));
    const Bytes expected = packed_slowly(memory.data() + begin, shape, strides, static_cast<std::size_t>(item));
    REQUIRE(layout.size_bytes() == expected.size());
    const auto from = static_cast<std::size_t>(up_to(static_cast<int>(expected.size())));
    const auto to = from + static_cast<std::size_t>(up_to(static_cast<int>(expected.size() - from)));
    Bytes packed(to - from);
    layout.pack(from, to, packed.data());
    CHECK(std::equal(packed.begin(), packed.end(), expected.begin() + static_cast<std::ptrdiff_t>(from)));

    Bytes other(memory.size());
    const HostLayout target(other.data() + begin, shape, strides, static_cast<std::uint64_t>(item));
    const std::size_t middle = from;
    target.unpack(middle, expected.size(), expected.data() + middle);  // in two parts, the later one first
    target.unpack(0, middle, expected.data());
    CHECK(packed_slowly(other.data() + begin, shape, strides, static_cast<std::size_t>(item)) == expected);
    CHECK(layout.begin() >= reinterpret_cast<std::uint64_t>(memory.data()));
    CHECK(layout.end() <= reinterpret_cast<std::uint64_t>(memory.data() + memory.size()));
  }
}

TEST_CASE("a layout knows whether items lie in one place, and whether it meets another") {
  Bytes memory(100);
  CHECK(HostLayout(memory.data(), {3, 4}, {0, 4}, 4).repeats());
  CHECK_FALSE(HostLayout(memory.data(), {1, 4}, {0, 4}, 4).repeats());
  const HostLayout low(memory.data() + 40, {5}, {-8}, 8), high(memory.data() + 48, {2}, {8}, 8);
  CHECK(low.begin() == reinterpret_cast<std::uint64_t>(memory.data() + 8));
  CHECK_FALSE(low.meets(high));
  CHECK(low.meets(flat(memory)));
  CHECK(HostLayout(memory.data(), {0, 4}, {4, 4}, 4).size_bytes() == 0);
}

TEST_CASE("bytes arrive, both ways, however large the ring is") {
  for (const auto& [chunk, is_helping] :
       {std::pair(std::size_t(100), false), std::pair(std::size_t(100), true), std::pair(std::size_t(4096), false),
        std::pair(mib, false), std::pair(mib, true)}) {
    LockedRing ring(2 * chunk);
    CopyThreads threads(4);
    ring.join(threads);
    Stream stream;
    const std::size_t size = 20 * chunk + 33;
    Bytes source = numbered(size), device(size), target(size);
    Copies copies{threads, is_helping};
    const auto there = copies.carry(stream, ring, flat(source), device, Way::fill, chunk);
    const auto back = copies.carry(stream, ring, flat(target), device, Way::drain, chunk);
    stream.drain();
    CHECK(target == source);  // the stream itself came after the last byte
    wait_for_end(there);
    wait_for_end(back);
    CHECK(threads.is_idle(*ring.ring));
  }
}

TEST_CASE("streams that share a ring, and rings that share the threads, keep their order") {
  constexpr std::size_t chunk = 1000;
  LockedRing a(4 * chunk), b(3 * chunk);
  CopyThreads threads(3);
  a.join(threads);
  b.join(threads);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<Stream>());
  Copies copies{threads};
  std::mt19937 random(3);
  struct Round {
    Bytes source, device, target;
  };
  std::vector<std::unique_ptr<Round>> rounds;
  for (int i = 0; i < 60; ++i) {
    const std::size_t size = 1 + random() % 9000;
    rounds.push_back(
        std::make_unique<Round>(Round{numbered(size, static_cast<unsigned>(i)), Bytes(size), Bytes(size)}));
    Round& round = *rounds.back();
    Stream& stream = *streams[random() % 4];
    copies.carry(stream, random() % 2 ? a : b, flat(round.source), round.device, Way::fill, chunk);
    copies.carry(stream, random() % 2 ? a : b, flat(round.target), round.device, Way::drain, chunk);
  }
  for (auto& stream : streams) stream->drain();
  for (const auto& round : rounds) CHECK(round->target == round->source);
}

TEST_CASE("memory that is still to be written is read behind that") {
  LockedRing a(8192), b(8192);
  CopyThreads threads(2);
  a.join(threads);
  b.join(threads);
  Stream first, second;
  Copies copies{threads};
  std::atomic<bool> may_go{false};
  Bytes device = numbered(20000), shared(20000), other(20000);
  first.put([&] {
    while (!may_go) std::this_thread::yield();
  });
  copies.carry(first, a, flat(shared), device, Way::drain, 1000);
  CHECK(threads.is_being_written(flat(shared)));
  copies.carry(second, b, flat(shared), other, Way::fill, 1000);
  CHECK(read_word(b.ring->words().granted()) == 0);
  may_go = true;
  second.drain();
  CHECK(other == device);
  CHECK_FALSE(threads.is_being_written(flat(shared)));
}

TEST_CASE("page-locked arrays are read and written in place, in their stream's time") {
  LockedRing ring(4096);
  CopyThreads threads(2);
  ring.join(threads);
  Stream stream;
  Bytes source = numbered(3 * mib), locked(3 * mib), target(3 * mib);
  const Words words = ring.ring->words();
  auto in_place = [&](Bytes& host, Way way) {
    const auto [transfer, parts] = threads.hand_over(*ring.ring, flat(host), way, mib, locked.data());
    threads.call(*transfer, nullptr);
    const auto number = parts.at(0).number;
    stream.write(words.passed(), number);
    stream.wait(words.finished(), number);
  };
  in_place(source, Way::store);
  stream.put([&] { CHECK(locked == source); });
  stream.put([&] { locked[7] = std::byte(~static_cast<unsigned>(locked[7])); });
  in_place(target, Way::drain);
  stream.drain();
  CHECK(target == locked);
  CHECK_FALSE(target == source);
}

TEST_CASE(
    "who hands over carries what is short: no thread is there, and the part of the ring is used again when it has "
    "passed") {
  LockedRing ring(2000);
  CopyThreads threads(2);
  ring.join(threads);
  const Words words = ring.ring->words();
  Bytes source = numbered(2000);
  auto hand_over = [&] { return threads.hand_over(*ring.ring, flat(source), Way::fill, 1000); };
  const auto first = hand_over(), second = hand_over();
  for (const auto& part : first.parts) CHECK(threads.carry_now(*ring.ring, part.number));
  CHECK(ring.memory == source);
  CHECK(read_word(words.granted()) == 2);
  CHECK_FALSE(threads.carry_now(*ring.ring, first.parts[0].number));   // it is carried
  CHECK_FALSE(threads.carry_now(*ring.ring, second.parts[0].number));  // its part of the ring is not free
  CHECK(threads.chunk_count(*ring.ring) == 4);
  write_word(words.passed(), 2);
  CHECK(threads.chunk_count(*ring.ring) == 2);
  CHECK(first.transfer->has_ended());
  for (const auto& part : second.parts) CHECK(threads.carry_now(*ring.ring, part.number));
  write_word(words.passed(), 4);
  CHECK(threads.is_idle(*ring.ring));
  CHECK(threads.thread_count() == 0);
}

TEST_CASE("numbers wrap") {
  CHECK(has_reached(5, 5));
  CHECK(has_reached(2, 0xFFFFFFFFu));
  CHECK_FALSE(has_reached(0xFFFFFFFFu, 2));
}

TEST_CASE("what a device was refused passes when its turn comes") {
  LockedRing ring(4096);
  CopyThreads threads(2);
  ring.join(threads);
  Stream stream;
  Copies copies{threads};
  Bytes source = numbered(3000), device(3000);
  const auto [refused, parts] = threads.hand_over(*ring.ring, flat(source), Way::fill, 1000);
  threads.call(*refused, nullptr);
  stream.wait(ring.ring->words().granted(), parts[0].number);  // that much was accepted
  stream.write(ring.ring->words().passed(), parts[0].number);
  stream.wait(ring.ring->words().granted(), parts[1].number);  // and this much of the second
  threads.withdraw(*ring.ring, parts[1].number);
  const auto later = copies.carry(stream, ring, flat(source), device, Way::fill, 1000);
  stream.drain();
  CHECK(device == source);
  wait_for_end(refused);
  wait_for_end(later);
}

TEST_CASE("a lost device ends what its ring carries, and no other") {
  LockedRing lost(4096), well(4096);
  CopyThreads threads(2);
  lost.join(threads);
  well.join(threads);
  Stream stream;
  Copies copies{threads};
  Bytes source = numbered(50000), device(50000), target(50000);
  std::atomic<bool> is_lost{false};
  auto ask = [&] { return is_lost.load(); };
  const TransferRef gone = threads.hand_over(*lost.ring, flat(source), Way::fill, 1000).transfer;
  threads.call(*gone, ask);
  const TransferRef unread = threads.hand_over(*lost.ring, flat(target), Way::drain, 1000).transfer;
  threads.call(*unread, ask);
  const auto number = lost.ring->last_number();
  CHECK_FALSE(gone->has_ended());
  is_lost = true;
  wait_for_end(gone);
  wait_for_end(unread);
  CHECK(threads.is_lost(*lost.ring));
  const TransferRef late =
      threads.hand_over(*lost.ring, flat(source), Way::fill, 1000).transfer;  // who had not heard of it
  threads.call(*late, ask);
  wait_for_end(late);
  CHECK(read_word(lost.ring->words().granted()) == lost.ring->last_number());
  CHECK(number != lost.ring->last_number());
  CHECK(read_word(lost.ring->words().finished()) ==
        lost.ring->last_number());  // a stream that goes on after all is not held up
  copies.carry(stream, well, flat(source), device, Way::fill, 1000);
  stream.drain();
  CHECK(device == source);
}

TEST_CASE("the end lets streams pass that wait for the threads") {
  Stream stream;
  LockedRing ring(4096);
  auto threads = std::make_unique<CopyThreads>(2);
  ring.join(*threads);
  Copies copies{*threads};
  std::atomic<bool> may_go{false};
  stream.put([&] {
    while (!may_go) std::this_thread::yield();
  });
  Bytes source = numbered(50000), device(50000), target(50000);
  const auto there = copies.carry(stream, ring, flat(source), device, Way::fill, 1000);
  const auto back = copies.carry(stream, ring, flat(target), device, Way::drain, 1000);
  CHECK(threads->stop_within(std::chrono::minutes(1)));
  CHECK(there->has_ended());
  CHECK(back->has_ended());
  may_go = true;
  stream.drain();
}

TEST_CASE("threads are as many as there is work for") {
  LockedRing ring(8 * mib);
  CopyThreads threads(3);
  ring.join(threads);
  Stream stream;
  Copies copies{threads};
  Bytes small(1000), large(8 * mib), device(8 * mib);
  copies.carry(stream, ring, flat(small), device, Way::fill, 1000);
  CHECK(threads.thread_count() == 1);
  copies.carry(stream, ring, flat(large), device, Way::fill, mib);
  CHECK(threads.thread_count() == 3);
  stream.drain();
}

TEST_CASE("an idle ring takes more memory") {
  LockedRing ring(1000);
  CopyThreads threads(1);
  ring.join(threads);
  Stream stream;
  Copies copies{threads};
  Bytes source = numbered(5000), device(5000), larger(5000);
  wait_for_end(copies.carry(stream, ring, flat(source), device, Way::fill, 500));
  CHECK(threads.is_idle(*ring.ring));
  threads.replace_memory(*ring.ring, larger);
  CHECK(ring.ring->size_bytes() == 5000);
  device.assign(5000, std::byte(0));
  copies.carry(stream, ring, flat(source), device, Way::fill, 5000);
  stream.drain();
  CHECK(device == source);
}
