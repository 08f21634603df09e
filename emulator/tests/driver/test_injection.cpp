// Faults on purpose: what a plan says, and that each fault is made where the plan has it and nowhere else. A plan is
// of a whole process, so each is carried out in one of its own: this program again, for one of the cases below that
// are skipped otherwise.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <string>

#include "injection.hpp"
#include "settings.hpp"
#include "support.hpp"

using namespace driver_test;
using namespace aiocuda::emulator::injection;
using aiocuda::emulator::parse_settings;

namespace {

void carry_out(const std::string& plan, const std::string& name) {
  char path[PATH_MAX] = {};
  REQUIRE(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
  const std::string command =
      "AIOCUDA_EMULATOR_FAULTS=" + plan + " timeout 60 " + path + " --no-skip --test-case='" + name + "'";
  const int status = std::system(command.c_str());
  CHECK_MESSAGE(WIFEXITED(status), plan);
  CHECK_MESSAGE(WEXITSTATUS(status) == 0, plan);
}

std::vector<int> struck(Injection& injection, Kind kind, int device, int times) {
  std::vector<int> found;
  for (int each = 1; each <= times; ++each) {
    if (injection.strikes(kind, device)) found.push_back(each);
  }
  return found;
}

CUresult allocate_and_free() {
  CUdeviceptr memory = 0;
  const CUresult result = cuMemAlloc(&memory, 1024);
  if (result == CUDA_SUCCESS) CHECK_OK(cuMemFree(memory));
  return result;
}

CUresult allocate_in_order(CUstream stream) {
  CUdeviceptr memory = 0;
  const CUresult result = cuMemAllocAsync(&memory, 1024, stream);
  if (result == CUDA_SUCCESS) CHECK_OK(cuMemFreeAsync(memory, stream));
  return result;
}

}  // namespace

TEST_CASE("a plan strikes what it numbers, once, and a device's own where it names one") {
  const auto plan = parse_plan("alloc:3,alloc:4,launch:1@1,lost:2@0", 2);
  REQUIRE(plan.has_value());
  Injection injection(*plan);
  CHECK(struck(injection, Kind::alloc, 0, 10) == std::vector{3, 4});
  CHECK(struck(injection, Kind::launch, 0, 5).empty());
  CHECK(struck(injection, Kind::launch, 1, 5) == std::vector{1});
  CHECK(struck(injection, Kind::lost, 1, 5).empty());
  CHECK(struck(injection, Kind::lost, 0, 5) == std::vector{2});
  CHECK(struck(injection, Kind::stall, 0, 1000).empty());
}

TEST_CASE("a seed strikes at its rate, always the same, and never so that a context is lost") {
  Injection one(*parse_plan("seed:7:100", 1)), same(*parse_plan("seed:7:100", 1)), other(*parse_plan("seed:8:100", 1));
  const auto found = struck(one, Kind::alloc, 0, 10000);
  CHECK(found.size() > 800);
  CHECK(found.size() < 1200);
  CHECK(found == struck(same, Kind::alloc, 0, 10000));
  CHECK(found != struck(other, Kind::alloc, 0, 10000));
  CHECK(struck(one, Kind::launch, 0, 10000) != found);
  CHECK(struck(one, Kind::illegal, 0, 10000).empty());
  CHECK(struck(one, Kind::lost, 0, 10000).empty());
}

TEST_CASE("what is no plan is an error that names the variable and what it may say") {
  for (const char* plan :
       {"alloc",    "alloc:",   "alloc:0",     "alloc:1000001", "alloc:-1",   "alloc:1x",         "aloc:1",
        "alloc:1,", ",",        "alloc:1 ",    "lost:1@",       "lost:1@2",   "lost:1@-1",        "lost:@1",
        "seed:1",   "seed:1:0", "seed:1:1001", "seed:x:1",      "seed:1:1@1", "seed:1:1,seed:2:1"}) {
    const auto found = parse_settings({.devices = "2", .faults = plan});
    CHECK_MESSAGE(found.error.find("AIOCUDA_EMULATOR_FAULTS must be") != std::string::npos, plan);
    CHECK_MESSAGE(found.error.find("not_ready:n") != std::string::npos, plan);
    CHECK_MESSAGE(found.error.find("'" + std::string(plan) + "'") != std::string::npos, plan);
  }
  CHECK(parse_settings({}).faults.empty());
  CHECK(parse_settings({.faults = ""}).faults.empty());
  const auto found = parse_settings({.devices = "2", .faults = "slow_copy:2@1,seed:18446744073709551615:1000"});
  CHECK(found.error.empty());
  CHECK(found.faults.faults.size() == 1);
  CHECK(found.faults.faults[0].device == 1);
  CHECK(found.faults.draw->seed == ~std::uint64_t{0});
}

TEST_CASE("each fault is made where it is planned") {
  carry_out("alloc:3", "planned: the third allocation");
  carry_out("alloc:2@1", "planned: the second allocation on device 1");
  carry_out("launch:2", "planned: the second launch");
  carry_out("illegal:2", "planned: the second kernel");
  carry_out("lost:1@1", "planned: the loss of device 1");
  carry_out("stall:2@1", "planned: the second piece of work");
  carry_out("stall:1@1,lost:2@1", "planned: a loss during a stall");
  carry_out("slow_copy:2", "planned: the second copy");
  carry_out("not_ready:2", "planned: the second query");
  carry_out("nonsense:2", "planned: nonsense");
}

TEST_CASE("planned: the third allocation" * doctest::skip()) {
  const Device device;
  const Stream stream;
  CHECK_OK(allocate_and_free());
  CHECK_OK(allocate_in_order(stream));
  void* page_locked = nullptr;
  CHECK(cuMemAllocHost(&page_locked, 64) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_OK(allocate_and_free());
  CHECK_OK(allocate_in_order(stream));
  CHECK_OK(cuStreamSynchronize(stream));
}

TEST_CASE("planned: the second allocation on device 1" * doctest::skip()) {
  const Device other(1);
  const Device device(0);
  for (int each = 0; each < 5; ++each) CHECK_OK(allocate_and_free());
  other.make_current();
  const Stream stream;
  CHECK_OK(allocate_and_free());
  CHECK(allocate_in_order(stream) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_OK(allocate_in_order(stream));
}

TEST_CASE("planned: the second launch" * doctest::skip()) {
  const Device device;
  const Module module;
  const Stream stream;
  const SharedInts<1> out;
  const CUfunction add = module.function("add");
  CHECK_OK(launch(add, stream, 1, out.data(), 1));
  CHECK(launch(add, stream, 1, out.data(), 10) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_OK(launch(add, stream, 1, out.data(), 100));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(out[0] == 101);
}

TEST_CASE("planned: the second kernel" * doctest::skip()) {
  const Device other(1);
  const Device device(0);
  const Module module;
  const Stream stream;
  const SharedInts<1> out;
  const CUfunction add = module.function("add");
  {
    Gate gate(stream);
    for (int each = 0; each < 3; ++each) CHECK_OK(launch(add, stream, 1, out.data(), 1));
  }
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(out[0] == 1);
  CHECK(launch(add, stream, 1, out.data(), 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  other.make_current();
  CHECK_OK(cuCtxSynchronize());
  CHECK_OK(allocate_and_free());
}

TEST_CASE("planned: the loss of device 1" * doctest::skip()) {
  const Device other(1);
  const Stream lost;
  const SharedInts<1> out;
  CHECK_OK(cuMemsetD32Async(out.address(), 5, 1, lost));
  CHECK(cuStreamSynchronize(lost) == CUDA_ERROR_ECC_UNCORRECTABLE);
  CHECK(out.get(0) == 0);
  CHECK(cuStreamQuery(lost) == CUDA_ERROR_ECC_UNCORRECTABLE);
  const Device device(0);
  const Stream stream;
  CHECK_OK(cuMemsetD32Async(out.address(), 6, 1, stream));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(out.get(0) == 6);
}

TEST_CASE("planned: the second piece of work" * doctest::skip()) {
  const Device device(1);
  const Stream stream, other;
  const SharedInts<3> out;
  CHECK_OK(cuMemsetD32Async(out.address(0), 1, 1, stream));
  CHECK_OK(cuStreamSynchronize(stream));
  const auto begin = std::chrono::steady_clock::now();
  CHECK_OK(cuMemsetD32Async(out.address(1), 1, 1, stream));
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
  CHECK(std::chrono::steady_clock::now() - begin >= stall_time);
  CHECK(out.get(1) == 1);
  CHECK_OK(cuMemsetD32Async(out.address(2), 1, 1, other));
  CHECK_OK(cuCtxSynchronize());
  CHECK(out.get(2) == 1);
}

TEST_CASE("planned: a loss during a stall" * doctest::skip()) {
  const Device other(0);
  const SharedInts<2> out;
  {
    const Device device(1);
    const Stream stalled, lost;  // or the other way round: whichever begins first
    CHECK_OK(cuMemsetD32Async(out.address(0), 5, 1, stalled));
    const CUresult submitted = cuMemsetD32Async(out.address(1), 5, 1, lost);
    CHECK((submitted == CUDA_SUCCESS || submitted == CUDA_ERROR_ECC_UNCORRECTABLE));
    CHECK(cuStreamSynchronize(stalled) == CUDA_ERROR_ECC_UNCORRECTABLE);
    CHECK(cuStreamSynchronize(lost) == CUDA_ERROR_ECC_UNCORRECTABLE);
  }
  CHECK(out.get(0) == 0);  // dropped: the end of the context has waited for it
  CHECK(out.get(1) == 0);
  other.make_current();
}

TEST_CASE("planned: the second copy" * doctest::skip()) {
  const Device device;
  const Stream stream;
  const SharedInts<2> out;
  out.set(0, 3);
  const auto timed_copy = [&] {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_OK(cuMemcpyAsync(out.address(1), out.address(0), sizeof(int), stream));
    CHECK_OK(cuStreamSynchronize(stream));
    return std::chrono::steady_clock::now() - begin;
  };
  timed_copy();
  CHECK(timed_copy() >= slow_copy_time);
  CHECK(out.get(1) == 3);
}

TEST_CASE("planned: the second query" * doctest::skip()) {
  const Device device;
  const Stream stream;
  const Event event;
  CHECK_OK(cuEventRecord(event, stream));
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK_OK(cuStreamQuery(stream));
  CHECK(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
  CHECK_OK(cuEventQuery(event));
  CHECK_OK(cuStreamQuery(stream));
}

TEST_CASE("planned: nonsense" * doctest::skip()) { CHECK(cuInit(0) == CUDA_ERROR_INVALID_VALUE); }
