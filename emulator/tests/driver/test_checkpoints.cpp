// Checkpoints of this process and of another one: states, calls that are held, work that ends before.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "other_process.hpp"
#include "support.hpp"

using namespace driver_test;

namespace {

CUprocessState state_of(int process) {
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  REQUIRE_OK(cuCheckpointProcessGetState(process, &state));
  return state;
}

// Waits until a thread sleeps in the system, or has ended.
void wait_until_asleep(int process, int thread) {
  const std::string path = "/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) + "/stat";
  while (true) {
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::size_t bracket = text.rfind(')');
    if (bracket == std::string::npos || text[bracket + 2] == 'S') return;
    std::this_thread::yield();
  }
}

CUuuid uuid_of(CUdevice device) {
  CUuuid uuid;
  REQUIRE_OK(cuDeviceGetUuid(&uuid, device));
  return uuid;
}

bool are_equal(const CUuuid& a, const CUuuid& b) { return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0; }

}  // namespace

TEST_CASE("a process goes from running over locked to checkpointed, and back") {
  const Device device;
  const int self = getpid();
  CHECK(state_of(self) == CU_PROCESS_STATE_RUNNING);
  CHECK(cuCheckpointProcessCheckpoint(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuCheckpointProcessRestore(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuCheckpointProcessUnlock(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK_OK(cuCheckpointProcessLock(self, nullptr));
  CHECK(state_of(self) == CU_PROCESS_STATE_LOCKED);
  CHECK(cuCheckpointProcessLock(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuCheckpointProcessRestore(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK_OK(cuCheckpointProcessCheckpoint(self, nullptr));
  CHECK(state_of(self) == CU_PROCESS_STATE_CHECKPOINTED);
  CHECK(cuCheckpointProcessUnlock(self, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK_OK(cuCheckpointProcessRestore(self, nullptr));
  CHECK(state_of(self) == CU_PROCESS_STATE_LOCKED);
  CHECK_OK(cuCheckpointProcessUnlock(self, nullptr));
  CHECK(state_of(self) == CU_PROCESS_STATE_RUNNING);
}

TEST_CASE("a locked process holds the calls of its API until it is unlocked") {
  const Device device;
  const int self = getpid();
  REQUIRE_OK(cuCheckpointProcessLock(self, nullptr));
  std::atomic<int> thread{0};
  std::atomic<bool> is_unlocked{false};
  bool was_held = false;
  std::thread calls([&] {
    thread = gettid();
    int count = 0;
    CHECK_OK(cuDeviceGetCount(&count));
    was_held = is_unlocked;
  });
  while (thread == 0) std::this_thread::yield();
  wait_until_asleep(self, thread);
  is_unlocked = true;
  CHECK_OK(cuCheckpointProcessUnlock(self, nullptr));
  calls.join();
  CHECK(was_held);
}

TEST_CASE("a lock waits for the work that was submitted, or gives up and changes nothing") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2> flags;
  const int self = getpid();
  REQUIRE_OK(launch(module.function("wait_for"), stream, 1, flags.data(), flags.data() + 1));
  flags.wait_until_set(1);
  CUcheckpointLockArgs arguments{};
  arguments.timeoutMs = 1;
  CHECK(cuCheckpointProcessLock(self, &arguments) == CUDA_ERROR_NOT_READY);
  CHECK(state_of(self) == CU_PROCESS_STATE_RUNNING);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);  // and calls are let in again
  std::atomic<bool> is_opened{false};
  std::thread opens([&] {
    is_opened = true;
    flags.set(0, 1);
  });
  CHECK_OK(cuCheckpointProcessLock(self, nullptr));
  CHECK(is_opened);
  CHECK_OK(cuCheckpointProcessUnlock(self, nullptr));
  opens.join();
  CHECK_OK(cuStreamQuery(stream));
}

TEST_CASE("host functions that a lock waits for may ask the driver") {
  const Device device;
  const Stream stream;
  struct Asked {
    std::atomic<bool> began{false};
    std::atomic<int> calls{0};
  } asked;
  REQUIRE_OK(cuLaunchHostFunc(
      stream,
      [](void* given) {
        auto& self = *static_cast<Asked*>(given);
        self.began = true;
        int count = 0;
        for (int i = 0; i < 1000; ++i) {
          if (cuDeviceGetCount(&count) == CUDA_SUCCESS) ++self.calls;
          std::this_thread::yield();
        }
      },
      &asked));
  while (!asked.began) std::this_thread::yield();
  CHECK_OK(cuCheckpointProcessLock(getpid(), nullptr));
  CHECK(asked.calls == 1000);
  CHECK_OK(cuCheckpointProcessUnlock(getpid(), nullptr));
}

TEST_CASE("another process is held, keeps its memory, and can be restored onto another device") {
  const Device device;
  OtherProcess other("fill");
  REQUIRE(other.answer<CUresult>() == CUDA_SUCCESS);
  int thread = 0;
  CHECK_OK(cuCheckpointProcessGetRestoreThreadId(other.id(), &thread));
  CHECK(thread > 0);
  CHECK(thread != other.id());
  CHECK(state_of(other.id()) == CU_PROCESS_STATE_RUNNING);
  CHECK_OK(cuCheckpointProcessLock(other.id(), nullptr));
  other.give('a');
  REQUIRE(other.answer<char>() == 'a');
  wait_until_asleep(other.id(), other.id());
  CHECK_FALSE(other.has_answer());
  CHECK_OK(cuCheckpointProcessCheckpoint(other.id(), nullptr));
  CHECK(state_of(other.id()) == CU_PROCESS_STATE_CHECKPOINTED);
  CHECK(state_of(getpid()) == CU_PROCESS_STATE_RUNNING);

  CUcheckpointGpuPair pairs[] = {{uuid_of(0), uuid_of(1)}, {uuid_of(1), uuid_of(1)}};
  CUcheckpointRestoreArgs arguments{};
  arguments.gpuPairs = pairs;
  arguments.gpuPairsCount = 2;
  CHECK(cuCheckpointProcessRestore(other.id(), &arguments) == CUDA_ERROR_INVALID_VALUE);  // two devices become one
  pairs[1].newUuid.bytes[0] = 0;
  CHECK(cuCheckpointProcessRestore(other.id(), &arguments) == CUDA_ERROR_INVALID_VALUE);  // there is none of that name
  arguments.gpuPairs = pairs + 1;
  arguments.gpuPairsCount = 1;
  pairs[1].newUuid = uuid_of(0);
  CHECK(cuCheckpointProcessRestore(other.id(), &arguments) ==
        CUDA_ERROR_INVALID_VALUE);  // the device in use is missing
  CHECK(state_of(other.id()) == CU_PROCESS_STATE_CHECKPOINTED);
  arguments.gpuPairs = pairs;
  arguments.gpuPairsCount = 2;
  CHECK_OK(cuCheckpointProcessRestore(other.id(), &arguments));
  CHECK_FALSE(other.has_answer());
  CHECK_OK(cuCheckpointProcessUnlock(other.id(), nullptr));
  CHECK(are_equal(other.answer<CUuuid>(), uuid_of(1)));
  CHECK(other.end() == 0);
}

TEST_CASE("what cannot be checkpointed is refused") {
  const Device device;
  const int self = getpid();
  CUprocessState state;
  CHECK(cuCheckpointProcessGetState(0, &state) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCheckpointProcessGetState(-1, &state) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCheckpointProcessGetState(self, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCheckpointProcessGetRestoreThreadId(self, nullptr) == CUDA_ERROR_INVALID_VALUE);
  const pid_t without_driver = fork();  // it has the parent's descriptors, and no driver
  if (without_driver == 0) {
    pause();
    _exit(0);
  }
  CHECK(cuCheckpointProcessGetState(without_driver, &state) == CUDA_ERROR_NOT_INITIALIZED);
  CHECK(cuCheckpointProcessLock(without_driver, nullptr) == CUDA_ERROR_NOT_INITIALIZED);
  kill(without_driver, SIGKILL);
  waitpid(without_driver, nullptr, 0);
  CHECK(cuCheckpointProcessLock(without_driver, nullptr) == CUDA_ERROR_INVALID_VALUE);  // it has ended
  CUcheckpointLockArgs lock{};
  lock.reserved0 = 1;
  CHECK(cuCheckpointProcessLock(self, &lock) == CUDA_ERROR_INVALID_VALUE);
  CUcheckpointUnlockArgs unlock{};
  unlock.reserved[7] = 1;
  CHECK(cuCheckpointProcessUnlock(self, &unlock) == CUDA_ERROR_INVALID_VALUE);
  CHECK(state_of(self) == CU_PROCESS_STATE_RUNNING);
}
