// The board of ranks on one host: streams go on when all have written the same, and not before.
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "agreeing/board.hpp"

using aiocuda::agreeing::Board;

namespace {

struct Shared {
  explicit Shared(std::size_t ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      boards.push_back(std::make_unique<Board>(std::span(bytes.get(), Board::size_bytes()), rank, ranks));
  }
  Board& operator[](std::size_t rank) { return *boards[rank]; }

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte[], Free> bytes{new (std::align_val_t{4096}) std::byte[Board::size_bytes()]()};
  std::vector<std::unique_ptr<Board>> boards;
};

}  // namespace

TEST_CASE("who comes last lets all go on") {
  Shared shared(3);
  CHECK(shared[0].put(7) == 1);
  CHECK(shared[2].put(7) == 1);
  CHECK(shared[0].agreed() == 0);
  CHECK(shared[1].put(7) == 1);
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(shared[rank].agreed() == 1);
}

TEST_CASE("nobody goes beyond a call that is not the same for all, nor beyond what follows it") {
  Shared shared(2);
  shared[0].put(1);
  shared[1].put(2);
  shared[0].put(3);
  CHECK(shared[1].put(3) == 2);
  CHECK(shared[0].agreed() == 0);
  CHECK(shared[1].agreed() == 0);
  shared[0].raise_to(1);  // which hears otherwise that all is well
  CHECK(shared[0].agreed() == 1);
  CHECK(shared[1].agreed() == 0);
  shared[0].advance();
  CHECK(shared[1].agreed() == 2);
}

TEST_CASE("a word never goes back, also that of a rank which was let go") {
  Shared shared(2);
  for (std::uint64_t call = 0; call < 5; ++call) {
    shared[0].put(call);
    shared[1].put(call);
  }
  shared[0].raise_to(3);
  CHECK(shared[0].agreed() == 5);
  shared[0].let_go();
  const std::uint32_t word = shared[0].agreed();
  CHECK(static_cast<std::int32_t>(word - 1'000'000) > 0);
  for (std::uint32_t number = 0; number < 8; ++number) shared[0].raise_to(number);
  CHECK(shared[0].agreed() == word);
  shared[0].put(5);  // is written no more
  shared[1].put(5);
  CHECK(shared[1].agreed() == 5);
}

TEST_CASE("a rank that is far ahead writes the rest when the others come") {
  Shared shared(2);
  constexpr std::uint32_t many = 5 * Board::ring_size / 2;
  for (std::uint32_t call = 0; call < many; ++call) CHECK(shared[0].put(call) == call + 1);
  for (std::uint32_t call = 0; call < many; ++call) {
    shared[1].put(call);
    shared[0].advance();
    CHECK(shared[0].agreed() == call + 1);
  }
}

TEST_CASE("numbers go round") {
  Shared shared(2);
  constexpr std::uint32_t first = 0u - 3;
  const auto word = [&](std::size_t rank) {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(shared[rank].word_address());
  };
  std::vector<std::unique_ptr<Board>> late;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    word(rank)->store(first);
    // The first number of a row is how many were written.
    auto* const rows = shared.bytes.get() + Board::rows_at;
    const std::size_t row_bytes = (Board::size_bytes() - Board::rows_at) / Board::most_ranks;
    reinterpret_cast<std::atomic<std::uint32_t>*>(rows + rank * row_bytes)->store(first);
    late.push_back(std::make_unique<Board>(std::span(shared.bytes.get(), Board::size_bytes()), rank, 2));
  }
  for (std::uint32_t call = 0; call < 10; ++call) {
    CHECK(late[0]->put(call) == first + call + 1);
    CHECK(late[0]->agreed() == first + call);
    late[1]->put(call);
    CHECK(late[0]->agreed() == first + call + 1);
  }
}

TEST_CASE("ranks that come in any order agree on all, and none goes on before all have come") {
  constexpr std::uint32_t ranks = 4, calls = 20'000;
  Shared shared(ranks);
  std::vector<std::atomic<std::uint32_t>> put(ranks);
  std::atomic<bool> is_early = false;
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Board& board = shared[rank];
      for (std::uint32_t call = 1; call <= calls; ++call) {
        put[rank] = call;
        board.put(call * 1'000'003ull);
        const std::uint32_t agreed = board.agreed();
        for (const auto& each : put) {
          if (each < agreed) is_early = true;
        }
        if (call % (rank + 7) == 0) std::this_thread::yield();
      }
      while (board.agreed() != calls) {
        board.advance();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(!is_early);
}

TEST_CASE("memory that is too small, and a rank that there is not, are refused") {
  std::vector<std::byte> memory(Board::size_bytes());
  CHECK_THROWS_AS(Board(std::span(memory).first(100), 0, 2), std::invalid_argument);
  CHECK_THROWS_AS(Board(memory, 2, 2), std::invalid_argument);
  CHECK_THROWS_AS(Board(memory, 0, Board::most_ranks + 1), std::invalid_argument);
}
