// The threads that carry bytes through rings, in every order of what they, the caller and the device do (see
// scheduler.hpp).
#include "shadow_std.hpp"

#include "staging/crew.hpp"
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

// Its memory outlives the crew.
struct Ring {
  explicit Ring(std::size_t size) : memory(size) {}
  void join(Crew& crew) { lane = crew.add_lane(memory, {words.data()}); }

  Bytes memory;
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(3 * Words::stride, 0);
  Lane* lane = nullptr;
};

void wait_for(const std::uint32_t* word, std::uint32_t number) {
  model::wait_until("the device waits", [=] { return has_reached(model::load(word), number); });
}

// What a stream does for a copy: see crew.hpp. Of what was refused it does nothing.
void copy(const Ring& ring, const Crew::Handed& handed, Bytes& device, std::size_t refused_from = 1000) {
  const Words words = ring.lane->words();
  const bool is_fill = handed.transfer->way == Way::fill;
  for (std::size_t i = 0; i < handed.parts.size() && i < refused_from; ++i) {
    const Crew::Part& part = handed.parts[i];
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
        Ring ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        {
          Crew crew(1);
          ring.join(crew);
          const auto handed = crew.hand_over(*ring.lane, flat(host), Way::fill, chunk_bytes);
          std::thread stream([&] { copy(ring, handed, device); });
          crew.call(*handed.transfer, nullptr);
          stream.join();
          require(device == host, "the device has other bytes");
          model::wait_until("the caller waits", [&] { return handed.transfer->has_ended(); });
          require(crew.is_idle(*ring.lane), "the lane is not idle");
        }
      },
      2);
}

TEST_CASE("threads that sleep are woken for the next copy") {
  check_all(
      [] {
        Ring ring(chunk_bytes);
        Bytes host = numbered(chunk_bytes, 1), other = numbered(chunk_bytes, 9), device(chunk_bytes);
        {
          Crew crew(1);
          ring.join(crew);
          for (Bytes* bytes : {&host, &other}) {
            const auto handed = crew.hand_over(*ring.lane, flat(*bytes), Way::fill, chunk_bytes);
            std::thread stream([&] { copy(ring, handed, device); });
            crew.call(*handed.transfer, nullptr);
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
        Ring ring(chunk_bytes);
        Bytes host(2 * chunk_bytes), device = numbered(2 * chunk_bytes, 1);
        {
          Crew crew(1);
          ring.join(crew);
          const auto handed = crew.hand_over(*ring.lane, flat(host), Way::drain, chunk_bytes);
          std::thread stream([&] {
            copy(ring, handed, device);
            require(host == device, "the stream went on before the bytes were there");
            require(handed.transfer->has_ended(), "the stream went on before the transfer had ended");
          });
          crew.call(*handed.transfer, nullptr);
          stream.join();
        }
      },
      2);
}

TEST_CASE("host memory that is written and then read is read with what was written") {
  check_all(
      [] {
        Ring back(chunk_bytes), forth(chunk_bytes);
        Bytes host(chunk_bytes), from = numbered(chunk_bytes, 1), to(chunk_bytes);
        {
          Crew crew(1);
          back.join(crew);
          forth.join(crew);
          const auto drained = crew.hand_over(*back.lane, flat(host), Way::drain, chunk_bytes);
          crew.call(*drained.transfer, nullptr);
          const auto filled = crew.hand_over(*forth.lane, flat(host), Way::fill, chunk_bytes);
          crew.call(*filled.transfer, nullptr);
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
        Ring ring(2 * chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        {
          Crew crew(1);
          ring.join(crew);
          const auto handed = crew.hand_over(*ring.lane, flat(host), Way::fill, chunk_bytes);
          std::thread stream([&] { copy(ring, handed, device); });
          crew.call(*handed.transfer, nullptr);
          crew.carry_now(*ring.lane, handed.parts[0].number);
          stream.join();
          require(device == host, "the device has other bytes");
        }
      },
      2);
}

TEST_CASE("a copy that the driver refused halfway lets what comes later pass") {
  check_all(
      [] {
        Ring ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes), later = numbered(chunk_bytes, 50),
              there(chunk_bytes);
        {
          Crew crew(1);
          ring.join(crew);
          const auto refused = crew.hand_over(*ring.lane, flat(host), Way::fill, chunk_bytes);
          crew.withdraw(*ring.lane, refused.parts[1].number);
          crew.call(*refused.transfer, nullptr);
          const auto handed = crew.hand_over(*ring.lane, flat(later), Way::fill, chunk_bytes);
          std::thread stream([&] {
            copy(ring, refused, device, 1);
            copy(ring, handed, there);
          });
          crew.call(*handed.transfer, nullptr);
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
        Ring ring(chunk_bytes);
        Bytes host = numbered(2 * chunk_bytes, 1), device(2 * chunk_bytes);
        std::optional<std::thread> stream;
        std::shared_ptr<Transfer> transfer;
        {
          Crew crew(1);
          ring.join(crew);
          const auto handed = crew.hand_over(*ring.lane, flat(host), Way::fill, chunk_bytes);
          transfer = handed.transfer;
          // The words outlive the crew, and so may a stream's wait for them.
          stream.emplace([&ring, &device, words = ring.lane->words(), parts = handed.parts] {
            for (const Crew::Part& part : parts) {
              wait_for(words.granted(), part.number);
              write_word(words.passed(), part.number);
            }
          });
          crew.call(*handed.transfer, nullptr);
        }
        require(transfer->has_ended(), "the crew has gone, and somebody still touches the memory");
        stream->join();
      },
      2);
}

TEST_CASE("a device that is lost ends what it had, and its threads carry on for others") {
  check_all(
      [] {
        Ring lost(chunk_bytes), well(chunk_bytes);
        Bytes host = numbered(chunk_bytes, 1), other = numbered(chunk_bytes, 9), there(chunk_bytes);
        {
          Crew crew(1);
          lost.join(crew);
          well.join(crew);
          const auto dropped = crew.hand_over(*lost.lane, flat(host), Way::fill, chunk_bytes);
          crew.call(*dropped.transfer, [] { return true; });
          const auto handed = crew.hand_over(*well.lane, flat(other), Way::fill, chunk_bytes);
          crew.call(*handed.transfer, nullptr);
          std::thread stream([&] { copy(well, handed, there); });
          std::thread watcher([&] { crew.abandon(*lost.lane); });
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
