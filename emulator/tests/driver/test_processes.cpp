// Processes: a forked child, and an end with work in every stage.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support.hpp"

using namespace driver_test;

TEST_CASE("a forked child is told that nothing is initialised, and does not hang") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2> flags;
  const CUfunction function = module.function("wait_for");
  REQUIRE_OK(launch(function, stream, 4, flags.data(), flags.data() + 1));
  flags.wait_until_set(1);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int count = 0;
    CUdeviceptr memory = 0;
    CUstream made = nullptr;
    const CUresult results[] = {cuInit(0),
                                cuDeviceGetCount(&count),
                                cuCtxSynchronize(),
                                cuStreamSynchronize(stream),
                                cuStreamDestroy(stream),
                                cuStreamCreate(&made, 0),
                                cuMemAlloc(&memory, 64),
                                cuMemFree(flags.address()),
                                cuModuleUnload(module),
                                launch(function, stream, 1, flags.data(), flags.data())};
    for (const CUresult result : results) {
      if (result != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
    }
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  flags.set(0, 1);
  CHECK_OK(cuStreamSynchronize(stream));
}

TEST_CASE("a process ends cleanly with kernels running and work queued") {
  for (const char* way : {"return", "exit", "lost"}) {
    const std::string command = "timeout 20 " + std::string(EXIT_WITH_WORK_PATH) + " " + way;
    const int status = std::system(command.c_str());
    CHECK(WIFEXITED(status));
    CHECK_MESSAGE(WEXITSTATUS(status) == 0, "exit by ", way);
  }
}

TEST_CASE("a driver without devices says so") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("AIOCUDA_EMULATED_DEVICES", "0", 1);
    execl(EXIT_WITH_WORK_PATH, EXIT_WITH_WORK_PATH, "no-device", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == CUDA_ERROR_NO_DEVICE);
}
