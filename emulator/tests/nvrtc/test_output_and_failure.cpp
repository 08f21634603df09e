// What a kernel says and how it fails: printf, assert, __trap, clocks.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("printf writes whole lines to standard output, from every thread") {
  const Module module(R"(extern "C" __global__ void speak(const char* who) {
    printf("%s: block %u thread %d of %5.2f %lld %c%%\n", who, blockIdx.x, (int)threadIdx.x, 1.5, 1ll << 40, 'x');
    if (threadIdx.x == 0) { printf("in "); printf("%s\n", "pieces"); }
  })");
  const char who[] = "kernel";
  const std::string text =
      captured_output(1, [&] { module.launch("speak", {.grid = {4}, .block = {8}, .threads = 2}, &who[0]); });
  std::istringstream lines(text);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  CHECK(all.size() == 36);
  CHECK(std::count(all.begin(), all.end(), "kernel: block 3 thread 7 of  1.50 1099511627776 x%") == 1);
  CHECK(std::count(all.begin(), all.end(), "in pieces") == 4);
}

TEST_CASE("a failed assertion tells the place on standard error and ends the launch") {
  const Module module(Program{
      .source =
          "extern \"C\" __global__ void check(int n) {\n  assert(n < 10 || threadIdx.x != 3);\n  __syncthreads();\n}\n"
          "extern \"C\" __global__ void direct(int n) {\n  assert(n < 10);\n}",
      .name = "checked.cu"});
  module.launch("check", {.block = {32}}, 5);
  int error = 0;
  const std::string text = captured_output(2, [&] {
    try {
      module.launch("check", {.grid = {2}, .block = {32}}, 50);
    } catch (const LaunchFailure& failure) {
      error = failure.error;
    }
  });
  CHECK(error == 710);
  CAPTURE(text);
  CHECK(text.find("checked.cu:2: ") == 0);
  CHECK(text.find("block: [0,0,0], thread: [3,0,0] Assertion `n < 10 || threadIdx.x != 3` failed.") !=
        std::string::npos);
  error = 0;
  captured_output(2, [&] {
    try {
      module.launch("direct", {.block = {4}}, 50);
    } catch (const LaunchFailure& failure) {
      error = failure.error;
    }
  });
  CHECK(error == 710);
}

TEST_CASE("NDEBUG, as an option and before the header, turns assertions off") {
  const Module option(
      Program{.source = "extern \"C\" __global__ void k() { assert(false); }", .options = {"-DNDEBUG"}});
  option.launch("k", {});
  const EnvironmentVariable setting("AIOCUDA_EMULATOR_HOST_CODE", "1");  // for <assert.h>
  const Module defined("#define NDEBUG\n#include <assert.h>\nextern \"C\" __global__ void k() { assert(false); }");
  CHECK_NOTHROW(defined.launch("k", {}));
}

TEST_CASE("__trap ends the launch") {
  const Module module(R"(extern "C" __global__ void trap() { if (threadIdx.x == 5) __trap(); })");
  try {
    module.launch("trap", {.block = {8}});
    FAIL("the launch ended");
  } catch (const LaunchFailure& failure) {
    CHECK(failure.error == 719);
  }
}

TEST_CASE("clocks advance") {
  const Module module(R"(__device__ unsigned long long global_ns() {
    unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); return now;
  }
  extern "C" __global__ void time(long long* out) {
    long long before = clock64(); unsigned long long global = global_ns(); int ticks = clock();
    __nanosleep(100000);
    out[0] = clock64() - before; out[1] = global_ns() - global; out[2] = clock() != ticks;
  })");
  long long out[3] = {};
  module.launch("time", {}, &out[0]);
  CHECK(out[0] >= 100000);
  CHECK(out[1] >= 100000);
  CHECK(out[2] == 1);
}
