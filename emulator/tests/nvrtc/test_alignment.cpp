// Accesses that a GPU refuses because their address is no multiple of their type's alignment.
#include <doctest/doctest.h>

#include <cstdlib>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("an access that is misaligned for its type fails the launch and names line and type") {
  if (std::getenv("AIOCUDA_EMULATOR_CHECK") != nullptr) return;  // the driver's checks report it then
  const Module module(R"(extern "C" __global__ void wide(float* x, float* out) {
  out[0] = reinterpret_cast<float4*>(x + threadIdx.x)->x; // a member: what each compiler looks at
}
extern "C" __global__ void paired(float* x, float* out) {
  __shared__ float kept[8];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[0] = ((const float2*)(kept + 1))[0].y;
}
extern "C" __global__ void address_only(float* x, float* out) {
  float4* p = (float4*)(x + 1);
  if ((size_t)p % 16 == 0) out[0] = p->x; else out[0] = x[1];
})");
  alignas(16) float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float out = 0;
  module.launch("wide", {.block = {1}}, &x[0], &out);
  CHECK(out == 1);
  const auto failure_of = [&](const char* kernel, unsigned threads) -> std::string {
    try {
      module.launch(kernel, {.block = {threads}}, &x[0], &out);
    } catch (const LaunchFailure& failure) {
      CHECK(failure.error == 716);
      return failure.what();
    }
    return "the launch ended";
  };
  const std::string wide = failure_of("wide", 2);
  CAPTURE(wide);
  CHECK(wide.find("kernels.cu:2: block (0,0,0): a misaligned access") != std::string::npos);
  CHECK(wide.find("float4") != std::string::npos);
  CHECK(wide.find("aligned to 16 bytes") != std::string::npos);
  CHECK(failure_of("paired", 8).find("aligned to 8 bytes") != std::string::npos);
  module.launch("address_only", {.block = {1}}, &x[0], &out);
  CHECK(out == 2);
}
