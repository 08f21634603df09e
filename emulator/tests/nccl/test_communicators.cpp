// Communicators: several at once, aborts of those that wait, and ranks that die.
#include <array>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <utility>

#include "../driver/other_process.hpp"
#include "../driver/support.hpp"
#include "nccl_functions.hpp"

using driver_test::Device;
using driver_test::Gate;
using driver_test::OtherProcess;
using driver_test::SharedInts;
using driver_test::Stream;

#define CHECK_NCCL(call) CHECK((call) == ncclSuccess)
#define REQUIRE_NCCL(call) REQUIRE((call) == ncclSuccess)

namespace {

// One rank of this process: a device, a stream and two arrays.
struct Rank {
  explicit Rank(CUdevice ordinal) : device(ordinal) {}
  void put(int value) {
    for (std::size_t each = 0; each < count; ++each) sent.set(each, value);
  }
  ncclResult_t all_reduce(ncclComm_t communicator, CUstream on, std::size_t items = count) {
    device.make_current();
    return ncclAllReduce(sent.data(), received.data(), items, ncclInt32, ncclSum, communicator, on);
  }

  static constexpr std::size_t count = 1000;
  Device device;
  Stream stream;
  SharedInts<count> sent, received;
};

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  CHECK_NCCL(ncclCommGetAsyncError(communicator, &state));
  return state;
}

ncclResult_t state_after(ncclComm_t communicator, ncclResult_t before) {
  ncclResult_t state = before;
  while (state == before && ncclCommGetAsyncError(communicator, &state) == ncclSuccess) std::this_thread::yield();
  return state_of(communicator);
}

// The ranks of one communicator, blocking as NCCL's are at first, each on a device of this process. They are connected,
// so their calls do not wait for each other.
class Communicators {
 public:
  Communicators(Rank& zero, Rank& one) {
    REQUIRE_NCCL(ncclCommInitAll(made_.data(), 2, nullptr));
    REQUIRE_NCCL(ncclGroupStart());
    REQUIRE_NCCL(zero.all_reduce(made_[0], zero.stream, 1));
    REQUIRE_NCCL(one.all_reduce(made_[1], one.stream, 1));
    REQUIRE_NCCL(ncclGroupEnd());
    CHECK_OK(cuStreamSynchronize(zero.stream));
    CHECK_OK(cuStreamSynchronize(one.stream));
  }
  ~Communicators() {
    for (const ncclComm_t each : made_)
      if (each != nullptr) ncclCommDestroy(each);
  }
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  ncclComm_t operator[](std::size_t rank) const { return made_[rank]; }
  void abort(std::size_t rank) { CHECK_NCCL(ncclCommAbort(std::exchange(made_[rank], nullptr))); }

 private:
  std::array<ncclComm_t, 2> made_{};
};

}  // namespace

TEST_CASE("communicators of the same devices do not wait for each other") {
  Rank zero(0), one(1);
  const Communicators first(zero, one), second(zero, one);
  Rank also_zero(0), also_one(1);
  zero.put(1);
  one.put(2);
  also_zero.put(10);
  also_one.put(20);
  one.device.make_current();
  Gate gate(one.stream);
  CHECK_NCCL(zero.all_reduce(first[0], zero.stream));
  CHECK_NCCL(one.all_reduce(first[1], one.stream));
  CHECK_NCCL(also_zero.all_reduce(second[0], also_zero.stream));
  CHECK_NCCL(also_one.all_reduce(second[1], also_one.stream));
  CHECK_OK(cuStreamSynchronize(also_zero.stream));
  CHECK_OK(cuStreamSynchronize(also_one.stream));
  CHECK(also_zero.received.get(999) == 30);
  CHECK(also_one.received.get(999) == 30);
  CHECK(cuStreamQuery(zero.stream) == CUDA_ERROR_NOT_READY);
  gate.open();
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK_OK(cuStreamSynchronize(one.stream));
  CHECK(zero.received.get(999) == 3);
  CHECK(one.received.get(999) == 3);
}

TEST_CASE("ranks that threads drive add up what each has put, many times, in two communicators") {
  Rank zero(0), one(1);
  const Communicators first(zero, one), second(zero, one);
  Rank also_zero(0), also_one(1);
  auto drive = [](Rank& rank, ncclComm_t communicator, int value, int* wrong) {
    rank.device.make_current();
    for (int turn = 1; turn <= 20; ++turn) {
      rank.put(value * turn);
      *wrong += rank.all_reduce(communicator, rank.stream) != ncclSuccess;
      *wrong += cuStreamSynchronize(rank.stream) != CUDA_SUCCESS;
      *wrong += rank.received.get(turn) != 3 * turn;
    }
  };
  std::array<int, 4> wrong{};
  {
    const std::jthread a(drive, std::ref(zero), first[0], 1, wrong.data());
    const std::jthread b(drive, std::ref(one), first[1], 2, &wrong[1]);
    const std::jthread c(drive, std::ref(also_zero), second[0], 1, &wrong[2]);
    const std::jthread d(drive, std::ref(also_one), second[1], 2, &wrong[3]);
  }
  CHECK(wrong == std::array<int, 4>{});
}

TEST_CASE("messages of one group cross") {
  Rank zero(0), one(1);
  const Communicators made(zero, one);
  zero.put(1);
  one.put(2);
  auto exchange = [](Rank& rank, ncclComm_t communicator, int peer) {
    rank.device.make_current();
    CHECK_NCCL(ncclSend(rank.sent.data(), Rank::count, ncclInt32, peer, communicator, rank.stream));
    CHECK_NCCL(ncclRecv(rank.received.data(), Rank::count, ncclInt32, peer, communicator, rank.stream));
  };
  CHECK_NCCL(ncclGroupStart());
  exchange(zero, made[0], 1);
  exchange(one, made[1], 0);
  CHECK_NCCL(ncclGroupEnd());
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK_OK(cuStreamSynchronize(one.stream));
  CHECK(zero.received.get(0) == 2);
  CHECK(one.received.get(0) == 1);
}

TEST_CASE("an abort ends work that waits for another rank, and leaves other work alone") {
  Rank zero(0), one(1);
  Communicators made(zero, one);
  const Communicators other(zero, one);
  zero.put(1);
  CHECK_NCCL(zero.all_reduce(made[0], zero.stream));
  CHECK(cuStreamQuery(zero.stream) == CUDA_ERROR_NOT_READY);
  CUresult ended = CUDA_ERROR_UNKNOWN;
  {
    const std::jthread waits([&] {
      zero.device.make_current();
      ended = cuStreamSynchronize(zero.stream);
    });
    made.abort(0);
  }
  CHECK(ended == CUDA_SUCCESS);
  CHECK(zero.received.get(0) == 0);
  // The other rank is told when it waits for the one that has aborted. It waits in its first call if the abort came
  // before that rank had given its part, and then its second call may be refused; otherwise it waits in the second.
  CHECK_NCCL(one.all_reduce(made[1], one.stream));
  const ncclResult_t second = one.all_reduce(made[1], one.stream);
  CHECK((second == ncclSuccess || second == ncclRemoteError));
  CHECK(state_after(made[1], ncclSuccess) == ncclRemoteError);
  CHECK(cuStreamQuery(one.stream) == CUDA_ERROR_NOT_READY);
  made.abort(1);
  CHECK_OK(cuStreamSynchronize(one.stream));
  // Neither devices nor other communicators have noticed anything.
  CHECK_NCCL(zero.all_reduce(other[0], zero.stream));
  CHECK_NCCL(one.all_reduce(other[1], one.stream));
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK(zero.received.get(0) == 1);
}

TEST_CASE("an abort ends work that its stream has not come to") {
  Rank zero(0);
  Rank one(1);
  Communicators made(zero, one);
  zero.put(1);
  zero.device.make_current();
  Gate gate(zero.stream);
  CHECK_NCCL(zero.all_reduce(made[0], zero.stream));
  made.abort(0);  // it does not wait for the gate
  gate.open();
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK(zero.received.get(0) == 0);
}

TEST_CASE("an abort ends a rank that waits for others to join") {
  const Device device;
  ncclUniqueId id;
  REQUIRE_NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = nccl_test::config_of(false);
  ncclComm_t alone = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&alone, 2, id, 0, &config);
  CHECK((begun == ncclInProgress || begun == ncclSuccess));
  CHECK(state_of(alone) == ncclInProgress);
  CHECK_NCCL(ncclCommAbort(alone));
}

TEST_CASE("ranks that do not call the same are told, and exchange nothing") {
  Rank zero(0), one(1);
  Communicators made(zero, one);
  one.put(5);
  CHECK_NCCL(zero.all_reduce(made[0], zero.stream));
  CHECK_NCCL(one.all_reduce(made[1], one.stream, 999));
  CHECK(state_after(made[0], ncclSuccess) == ncclInvalidUsage);
  CHECK(std::string(ncclGetLastError(made[0])).find("999") != std::string::npos);
  made.abort(0);
  made.abort(1);
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK_OK(cuStreamSynchronize(one.stream));
  CHECK(zero.received.get(0) == 0);
}

namespace {

// Rank 0 here, and rank 1 in a process of its own; both have joined.
struct ToBeKilled {
  ToBeKilled() {
    ncclUniqueId id;
    REQUIRE_NCCL(ncclGetUniqueId(&id));
    other.give(id);
    REQUIRE_NCCL(ncclCommInitRankConfig(&communicator, 2, id, 0, nullptr));
    CHECK(other.answer<ncclResult_t>() == ncclSuccess);
  }
  OtherProcess other{nullptr};
  Rank zero{0};
  ncclComm_t communicator = nullptr;
};

}  // namespace

TEST_CASE("a rank whose process is killed is named, and streams wait until they are aborted") {
  ToBeKilled made;
  CHECK_NCCL(made.zero.all_reduce(made.communicator, made.zero.stream, 1));
  CHECK_OK(cuStreamSynchronize(made.zero.stream));
  CHECK_NCCL(made.zero.all_reduce(made.communicator, made.zero.stream));
  CHECK(state_of(made.communicator) == ncclSuccess);
  kill(made.other.id(), SIGKILL);
  CHECK(made.other.end() == -1);
  CHECK(state_after(made.communicator, ncclSuccess) == ncclRemoteError);
  CHECK(std::string(ncclGetLastError(made.communicator)).find("waits for rank 1, which is gone") != std::string::npos);
  CHECK(cuStreamQuery(made.zero.stream) == CUDA_ERROR_NOT_READY);
  CHECK_NCCL(ncclCommAbort(made.communicator));
  CHECK_OK(cuStreamSynchronize(made.zero.stream));
  CHECK(made.zero.received.get(0) == 0);
}

namespace {

// Two ranks of this process that do not block, and of each a communicator that was split off and blocks.
class Families {
 public:
  Families(const Rank& zero, const Rank& one, bool shares) {
    ncclUniqueId id;
    ncclConfig_t config = nccl_test::config_of(false, shares), of_child = nccl_test::config_of(true);
    REQUIRE_NCCL(ncclGetUniqueId(&id));
    for (int rank = 0; rank < 2; ++rank) {
      (rank == 0 ? zero : one).device.make_current();
      const ncclResult_t begun = ncclCommInitRankConfig(&parents_[at(rank)], 2, id, rank, &config);
      REQUIRE((begun == ncclInProgress || begun == ncclSuccess));
    }
    for (const ncclComm_t each : parents_) REQUIRE(state_after(each, ncclInProgress) == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      const ncclResult_t begun = ncclCommSplit(parents_[at(rank)], 0, rank, &children_[at(rank)], &of_child);
      REQUIRE((begun == ncclInProgress || begun == ncclSuccess));
    }
    for (const ncclComm_t each : parents_) REQUIRE(state_after(each, ncclInProgress) == ncclSuccess);
  }
  ~Families() {
    for (const ncclComm_t each : children_) ncclCommAbort(each);
    for (const ncclComm_t each : parents_) ncclCommAbort(each);
  }
  Families(const Families&) = delete;
  Families& operator=(const Families&) = delete;
  ncclComm_t operator[](std::size_t rank) const { return children_[rank]; }
  void abort_parent(std::size_t rank) { CHECK_NCCL(ncclCommAbort(std::exchange(parents_[rank], nullptr))); }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::array<ncclComm_t, 2> parents_{}, children_{};
};

}  // namespace

TEST_CASE("a first call keeps its caller until the other rank has called, too") {
  Rank zero(0), one(1);
  const Families made(zero, one, true);
  zero.put(1);
  one.put(2);
  std::atomic<bool> has_returned = false;
  ncclResult_t first = ncclInProgress;
  {
    const std::jthread calls([&] {
      first = zero.all_reduce(made[0], zero.stream);
      has_returned = true;
    });
    CHECK(cuStreamQuery(zero.stream) == CUDA_SUCCESS);
    CHECK_FALSE(has_returned);
    CHECK_NCCL(one.all_reduce(made[1], one.stream));
  }
  CHECK(first == ncclSuccess);
  zero.device.make_current();
  CHECK_OK(cuStreamSynchronize(zero.stream));
  CHECK(zero.received.get(0) == 3);
  CHECK_NCCL(zero.all_reduce(made[0], zero.stream));  // which does not wait
  CHECK_NCCL(one.all_reduce(made[1], one.stream));
  CHECK_OK(cuStreamSynchronize(one.stream));
}

TEST_CASE("an abort of a communicator reaches a call of one that shares its resources") {
  Rank zero(0);
  const Rank one(1);
  Families made(zero, one, true);
  ncclResult_t first = ncclSuccess;
  {
    const std::jthread calls([&] { first = zero.all_reduce(made[0], zero.stream); });
    made.abort_parent(0);
  }
  CHECK(first == ncclInternalError);
  CHECK(cuStreamQuery(zero.stream) == CUDA_SUCCESS);
  // The other rank is told when it waits for the one that has aborted.
  made.abort_parent(1);
}

TEST_CASE("an abort of a communicator leaves one alone that shares nothing") {
  Rank zero(0), one(1);
  Families made(zero, one, false);
  made.abort_parent(0);
  zero.put(1);
  one.put(2);
  ncclResult_t first = ncclInProgress;
  {
    const std::jthread calls([&] { first = zero.all_reduce(made[0], zero.stream); });
    CHECK_NCCL(one.all_reduce(made[1], one.stream));
  }
  CHECK(first == ncclSuccess);
  CHECK_OK(cuStreamSynchronize(one.stream));
  CHECK(one.received.get(0) == 3);
}

TEST_CASE("two that first send each other something wait for each other, and for nobody else") {
  Rank zero(0), one(1);
  const Families made(zero, one, true);
  zero.put(7);
  ncclResult_t sent = ncclInProgress;
  {
    const std::jthread sends([&] {
      zero.device.make_current();
      sent = ncclSend(zero.sent.data(), Rank::count, ncclInt32, 1, made[0], zero.stream);
    });
    one.device.make_current();
    CHECK_NCCL(ncclRecv(one.received.data(), Rank::count, ncclInt32, 0, made[1], one.stream));
  }
  CHECK(sent == ncclSuccess);
  CHECK_OK(cuStreamSynchronize(one.stream));
  CHECK(one.received.get(999) == 7);
}

TEST_CASE("a first call whose other rank is killed is an error") {
  ToBeKilled made;
  kill(made.other.id(), SIGKILL);
  CHECK(made.other.end() == -1);
  // It may have called before it was killed. Then the call that was put on the stream fails.
  const ncclResult_t called = made.zero.all_reduce(made.communicator, made.zero.stream);
  CHECK((called == ncclSuccess || called == ncclRemoteError));
  CHECK(state_after(made.communicator, ncclSuccess) == ncclRemoteError);
  CHECK_NCCL(ncclCommAbort(made.communicator));
  CHECK_OK(cuStreamSynchronize(made.zero.stream));
}
