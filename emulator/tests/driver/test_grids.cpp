// Cooperative launches: their blocks all run at once and meet; what becomes of those that wait for one that never
// comes.
#include "support.hpp"

using namespace driver_test;

namespace {

constexpr unsigned blocks = 6;
constexpr int nobody = -1;

CUresult launch(CUfunction function, CUstream stream, int* out, int absent, bool cooperative) {
  void* parameters[] = {&out, &absent};
  return cooperative ? cuLaunchCooperativeKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters)
                     : cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace

TEST_CASE("blocks of a cooperative launch meet as often as they like") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2 * blocks> out;
  REQUIRE_OK(launch(module.function("meet"), stream, out.data(), nobody, true));
  REQUIRE_OK(cuStreamSynchronize(stream));
  for (unsigned each = 0; each < blocks; ++each) CHECK(out[blocks + each] == 3);
}

TEST_CASE("cooperative launches of two streams do not meet each other") {
  const Device device;
  const Module module;
  const Stream one, other;
  const SharedInts<2 * blocks> first, second;
  for (int round = 0; round < 20; ++round) {
    REQUIRE_OK(launch(module.function("meet"), one, first.data(), nobody, true));
    REQUIRE_OK(launch(module.function("meet"), other, second.data(), nobody, true));
  }
  REQUIRE_OK(cuStreamSynchronize(one));
  REQUIRE_OK(cuStreamSynchronize(other));
  for (unsigned each = 0; each < blocks; ++each) CHECK(first[blocks + each] + second[blocks + each] == 120);
}

TEST_CASE("a grid that waits for a block which has ended is a failure, not a hang") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2 * blocks> out;
  REQUIRE_OK(launch(module.function("meet"), stream, out.data(), 2, true));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("blocks of another launch cannot meet") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2 * blocks> out;
  REQUIRE_OK(launch(module.function("meet"), stream, out.data(), nobody, false));
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_LAUNCH_FAILED);
}
