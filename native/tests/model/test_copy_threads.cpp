// The threads that carry bytes through rings, in every order of what they, the caller and the device do (see
// scheduler.hpp).
#include "shadow_std.hpp"

#include "staging/copy_threads.hpp"
// after the shadows: doctest uses the standard library's own
#include "check_orders.hpp"

namespace aiocuda::staging {
namespace {

using model::require;
using Bytes = std::vector<std::byte>;

constexpr std::size_t chunk_bytes = 4;

Bytes numbered(std::size_t size, int first) {
  Bytes bytes;
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(first + static_cast<int>(i)));
  return bytes;
}
HostLayout flat(Bytes& bytes) { return {bytes.data(), {static_cast<std::int64_t>(bytes.size())}, {1}, 1}; }

// Its memory outlives the threads.
struct LockedRing {
  explicit LockedRing(std::size_t size) : memory(size) {}
  void join(CopyThreads& threads) { ring = threads.add_ring(memory, {words.data()}); }

  Bytes memory;
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(3 * Words::stride, 0);
  Ring* ring = nullptr;
};

void wait_for(const std::uint32_t* word, std::uint32_t number) {
  model::wait_until("the device waits", [=] { return has_reached(model::load(word), number); });
}

// The work of a stream for a copy: see copy_threads.hpp. It does nothing for refused calls.
void copy(const LockedRing& ring, const CopyThreads::Handed& handed, Bytes& device, std::size_t refused_from = 1000) {
  const Words words = ring.ring->words();
  const bool is_fill = handed.transfer->way == Way::fill;
  for (std::size_t i = 0; i < handed.parts.size() && i < refused_from; ++i) {
    const CopyThreads::Part& part = handed.parts[i];
    wait_for(words.granted(), part.number);
    const auto there = device.begin() + static_cast<std::ptrdiff_t>(part.begin);
    if (is_fill)
      std::copy_n(part.packed, part.size_bytes, there);
    else
      std::copy_n(there, part.size_bytes, part.packed);
    write_word(words.passed(), part.number);
  }
  if (!is_fill && refused_from >= handed.parts.size()) wait_for(words.finished(), handed.parts.back().number);
}

void check_all(const std::function<void()>& program, std::size_t deviations) {
  model::Limits limits;
  limits.deviations = deviations;
  model::check_orders(program, limits);
}

}  // namespace

TEST_CASE("bytes reach the device through a ring that holds one chunk of two") {
  check_all(
      [] {
        LockedRing ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        {
          CopyThreads threads(1);
          ring.join(threads);
          const auto handed = threads.hand_over(*ring.ring, flat(host), Way::fill, chunk_bytes);
          std::thread stream([&] { copy(ring, handed, device); });
          threads.call(*handed.transfer, nullptr);
          stream.join();
          require(device == host, "the device has other bytes");
          model::wait_until("the caller waits", [&] { return handed.transfer->has_ended(); });
          require(threads.is_idle(*ring.ring), "the ring is not idle");
        }
      },
      2);
}

TEST_CASE("threads that sleep are woken for the next copy") {
  check_all(
      [] {
        LockedRing ring(chunk_bytes);
        Bytes host = numbered(chunk_bytes, 1), other = numbered(chunk_bytes, 9), device(chunk_bytes);
        {
          CopyThreads threads(1);
          ring.join(threads);
          for (Bytes* bytes : {&host, &other}) {
            const auto handed = threads.hand_over(*ring.ring, flat(*bytes), Way::fill, chunk_bytes);
            std::thread stream([&] { copy(ring, handed, device); });
            threads.call(*handed.transfer, nullptr);
            stream.join();
            require(device == *bytes, "the device has other bytes");
            for (int i = 0; i < 3; ++i) model::yield();  // time goes by, and the threads sleep
          }
        }
      },
      1);
}

TEST_CASE("bytes come back from the device before its stream goes on") {
  check_all(
      [] {
        LockedRing ring(chunk_bytes);
        Bytes host(2 * chunk_bytes), device = numbered(2 * chunk_bytes, 1);
        {
          CopyThreads threads(1);
          ring.join(threads);
          const auto handed = threads.hand_over(*ring.ring, flat(host), Way::drain, chunk_bytes);
          std::thread stream([&] {
            copy(ring, handed, device);
            require(host == device, "the stream went on before the bytes were there");
            require(handed.transfer->has_ended(), "the stream went on before the transfer had ended");
          });
          threads.call(*handed.transfer, nullptr);
          stream.join();
        }
      },
      2);
}

TEST_CASE("host memory that is written and then read is read with what was written") {
  check_all(
      [] {
        LockedRing back(chunk_bytes), forth(chunk_bytes);
        Bytes host(chunk_bytes), from = numbered(chunk_bytes, 1), to(chunk_bytes);
        {
          CopyThreads threads(1);
          back.join(threads);
          forth.join(threads);
          const auto drained = threads.hand_over(*back.ring, flat(host), Way::drain, chunk_bytes);
          threads.call(*drained.transfer, nullptr);
          const auto filled = threads.hand_over(*forth.ring, flat(host), Way::fill, chunk_bytes);
          threads.call(*filled.transfer, nullptr);
          std::thread stream([&] { copy(back, drained, from); });
          copy(forth, filled, to);
          stream.join();
          require(to == from, "it was read before it was written");
        }
      },
      2);
}

TEST_CASE("who hands over may carry a chunk himself, beside the threads") {
  check_all(
      [] {
        LockedRing ring(2 * chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        {
          CopyThreads threads(1);
          ring.join(threads);
          const auto handed = threads.hand_over(*ring.ring, flat(host), Way::fill, chunk_bytes);
          std::thread stream([&] { copy(ring, handed, device); });
          threads.call(*handed.transfer, nullptr);
          threads.carry_now(*ring.ring, handed.parts[0].number);
          stream.join();
          require(device == host, "the device has other bytes");
        }
      },
      2);
}

TEST_CASE("a copy that the driver refused halfway lets what comes later pass") {
  check_all(
      [] {
        LockedRing ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes), later = numbered(chunk_bytes, 50),
              there(chunk_bytes);
        {
          CopyThreads threads(1);
          ring.join(threads);
          const auto refused = threads.hand_over(*ring.ring, flat(host), Way::fill, chunk_bytes);
          threads.withdraw(*ring.ring, refused.parts[1].number);
          threads.call(*refused.transfer, nullptr);
          const auto handed = threads.hand_over(*ring.ring, flat(later), Way::fill, chunk_bytes);
          std::thread stream([&] {
            copy(ring, refused, device, 1);
            copy(ring, handed, there);
          });
          threads.call(*handed.transfer, nullptr);
          stream.join();
          require(there == later, "the device has other bytes");
          model::wait_until("the caller waits", [&] { return refused.transfer->has_ended(); });
        }
      },
      2);
}

TEST_CASE("threads that are told to end let every stream pass, and touch nothing afterwards") {
  check_all(
      [] {
        LockedRing ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        std::optional<std::thread> stream;
        std::shared_ptr<Transfer> transfer;
        {
          CopyThreads threads(1);
          ring.join(threads);
          const auto handed = threads.hand_over(*ring.ring, flat(host), Way::fill, chunk_bytes);
          transfer = handed.transfer;
          // The words outlive the threads, and so may a stream's wait for them.
          stream.emplace([&ring, &device, words = ring.ring->words(), parts = handed.parts] {
            for (const CopyThreads::Part& part : parts) {
              wait_for(words.granted(), part.number);
              write_word(words.passed(), part.number);
            }
          });
          threads.call(*handed.transfer, nullptr);
        }
        require(transfer->has_ended(), "the threads has gone, and somebody still touches the memory");
        stream->join();
      },
      2);
}

TEST_CASE("a device that is lost ends what it had, and its threads carry on for others") {
  check_all(
      [] {
        LockedRing lost(chunk_bytes), well(chunk_bytes);
        Bytes host = numbered(chunk_bytes, 1), other = numbered(chunk_bytes, 9), there(chunk_bytes);
        {
          CopyThreads threads(1);
          lost.join(threads);
          well.join(threads);
          const auto dropped = threads.hand_over(*lost.ring, flat(host), Way::fill, chunk_bytes);
          threads.call(*dropped.transfer, [] { return true; });
          const auto handed = threads.hand_over(*well.ring, flat(other), Way::fill, chunk_bytes);
          threads.call(*handed.transfer, nullptr);
          std::thread stream([&] { copy(well, handed, there); });
          std::thread watcher([&] { threads.abandon(*lost.ring); });
          watcher.join();
          stream.join();
          model::wait_until("the caller waits",
                            [&] { return dropped.transfer->has_ended() && handed.transfer->has_ended(); });
          require(there == other, "the device has other bytes");
        }
      },
      2);
}

}  // namespace aiocuda::staging
