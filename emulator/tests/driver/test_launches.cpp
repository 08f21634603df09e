// Launches: shapes, arguments, limits, and the attributes of cuLaunchKernelEx.
#include <cstring>

#include "support.hpp"

using namespace driver_test;

TEST_CASE("every block runs once, whatever the shape of the grid") {
  const Device device;
  const Module module;
  const Stream stream;
  constexpr unsigned blocks = 3 * 5 * 7 * 100;
  const SharedInts<blocks> out;
  int* pointer = out.data();
  int value = 1;
  void* parameters[] = {&pointer, &value};
  REQUIRE_OK(cuLaunchKernel(module.function("add"), 300, 5, 7, 1, 1, 1, 0, stream, parameters, nullptr));
  REQUIRE_OK(cuStreamSynchronize(stream));
  bool once = true;
  for (unsigned each = 0; each < blocks; ++each) once &= out[each] == 1;
  CHECK(once);
}

TEST_CASE("arguments are copied at the call and aligned as their types need") {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<2> out;
  struct alignas(32) Wide {
    double values[4];
  } wide{{1, 0, 0, 20}};
  auto* pointer = reinterpret_cast<double*>(out.data());
  char tail = 3;
  void* parameters[] = {&pointer, &wide, &tail};
  Gate gate(stream);
  REQUIRE_OK(cuLaunchKernel(module.function("sum"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  wide = {};
  tail = 0;
  gate.open();
  REQUIRE_OK(cuStreamSynchronize(stream));
  double result = 0;
  std::memcpy(&result, out.data(), sizeof result);
  CHECK(result == 24);
}

TEST_CASE("a packed buffer is as good as pointers to the arguments") {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  struct {
    int* out;
    int value;
  } packed{out.data(), 5};
  std::size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  const CUfunction add = module.function("add");
  CHECK_OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  CHECK_OK(cuCtxSynchronize());
  CHECK(out[0] == 5);
  void* parameters[] = {&packed.out, &packed.value};
  CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, extra) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  bytes = 8;
  CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("launches beyond a limit are refused with CUDA's errors") {
  const Device device;
  const Module module;
  const auto shaped = [&](const char* kernel, unsigned grid, unsigned x, unsigned y, unsigned z, unsigned shared) {
    return cuLaunchKernel(module.function(kernel), grid, 1, 1, x, y, z, shared, nullptr, nullptr, nullptr);
  };
  CHECK(shaped("nothing", 0, 1, 1, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("nothing", 1, 0, 1, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("nothing", 1, 1025, 1, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("nothing", 1, 32, 32, 2, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("nothing", 1, 1, 1, 65, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("bounded", 1, 65, 1, 1, 0) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK(shaped("bounded", 1, 64, 1, 1, 9 * 1024) == CUDA_ERROR_INVALID_VALUE);
  CHECK(shaped("nothing", 1, 1, 1, 1, 228 * 1024) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_OK(cuFuncSetAttribute(module.function("bounded"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 9 * 1024));
  CHECK_OK(shaped("bounded", 1, 64, 1, 1, 9 * 1024));
  CHECK(launch(reinterpret_cast<CUfunction>(0x10), nullptr, 1) == CUDA_ERROR_INVALID_HANDLE);
  CHECK_OK(cuCtxSynchronize());
}

TEST_CASE("a kernel is told the shape of its launch") {
  const Device device;
  const Module module;
  const SharedInts<8> out;
  int* pointer = out.data();
  void* parameters[] = {&pointer};
  CUlaunchAttribute attributes[3] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attributes[0].value.priority = -1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {1, 1, 1};
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[2].value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{2, 3, 4, 8, 4, 2, 1024, nullptr, attributes, 3};
  CHECK_OK(cuLaunchKernelEx(&config, module.function("shape"), parameters, nullptr));
  CHECK_OK(cuCtxSynchronize());
  const int expected[] = {2, 3, 4, 8, 4, 2, 1024};
  for (int each = 0; each < 7; ++each) CHECK(out[each] == expected[each]);
}

TEST_CASE("a cluster is no larger than the function allows, divides the grid, and is the function's own") {
  const Device device;
  const Module module;
  const CUfunction nothing = module.function("nothing");
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  const auto launched = [&](unsigned grid, unsigned x, unsigned y = 1) {
    attribute.value.clusterDim = {x, y, 1};
    const CUlaunchConfig config{grid, 4, 1, 32, 1, 1, 0, nullptr, &attribute, 1};
    return cuLaunchKernelEx(&config, nothing, nullptr, nullptr);
  };
  CHECK_OK(launched(32, 8));
  CHECK_OK(launched(32, 2, 4));
  CHECK(launched(32, 16) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launched(32, 3) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launched(32, 1, 3) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launched(32, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launched(32, 0x80000000u, 2) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK_OK(cuFuncSetAttribute(nothing, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  CHECK_OK(launched(32, 16));
  CHECK(launched(34, 17) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  for (const auto each : {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                          CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    CHECK_OK(cuFuncSetAttribute(nothing, each, each == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH ? 4 : 1));
  }
  int width = 0;
  CHECK_OK(cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, nothing));
  CHECK(width == 4);
  CHECK_OK(launched(32, 4));
  CHECK(launched(32, 2) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(cuLaunchKernel(nothing, 6, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK_OK(cuLaunchKernel(nothing, 8, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
  CHECK_OK(cuCtxSynchronize());
}

TEST_CASE("a cooperative grid must fit on the device") {
  const Device device;
  const Module module;
  const CUfunction nothing = module.function("nothing");
  CHECK_OK(cuLaunchCooperativeKernel(nothing, 8, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));
  CHECK(cuLaunchCooperativeKernel(nothing, 9, 1, 1, 1024, 1, 1, 0, nullptr, nullptr) ==
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK_OK(cuCtxSynchronize());
}

TEST_CASE("a completion event asked for by a launch passes after it") {
  const Device device;
  const Module module;
  const Stream stream;
  const Event event(CU_EVENT_DISABLE_TIMING);
  const SharedInts<2> flags;
  int* pointers[] = {flags.data(), flags.data() + 1};
  void* parameters[] = {&pointers[0], &pointers[1]};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event;
  CUlaunchConfig config{1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
  REQUIRE_OK(cuLaunchKernelEx(&config, module.function("wait_for"), parameters, nullptr));
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  flags.set(0, 1);
  CHECK_OK(cuEventSynchronize(event));
}

TEST_CASE("functions and streams of different contexts do not mix") {
  const Device second(1);
  const Stream on_second;
  const Device first(0);
  const Module module;
  CHECK(launch(module.function("nothing"), on_second, 1) == CUDA_ERROR_INVALID_HANDLE);
}
