// What the tests share: owners of the driver's objects, and ways to hold a stream's work back and to
// let it go that need no sleeping. Each test leaves no primary context behind.
#pragma once
#include <cuda.h>
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define CHECK_OK(call) CHECK((call) == CUDA_SUCCESS)
#define REQUIRE_OK(call) REQUIRE((call) == CUDA_SUCCESS)

namespace driver_test {

// A device with its primary context current; reset at the end, whatever became of it.
class Device {
 public:
  explicit Device(CUdevice ordinal = 0) : ordinal_(ordinal) {
    REQUIRE_OK(cuInit(0));
    REQUIRE_OK(cuDevicePrimaryCtxRetain(&context_, ordinal));
    REQUIRE_OK(cuCtxSetCurrent(context_));
  }
  ~Device() {
    cuDevicePrimaryCtxRelease(ordinal_);
    cuDevicePrimaryCtxReset(ordinal_);
    cuCtxSetCurrent(nullptr);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  CUcontext context() const { return context_; }
  CUdevice ordinal() const { return ordinal_; }
  void make_current() const { REQUIRE_OK(cuCtxSetCurrent(context_)); }

 private:
  const CUdevice ordinal_;
  CUcontext context_ = nullptr;
};

class Stream {
 public:
  explicit Stream(unsigned flags = CU_STREAM_NON_BLOCKING) { REQUIRE_OK(cuStreamCreate(&handle_, flags)); }
  ~Stream() { cuStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator CUstream() const { return handle_; }

 private:
  CUstream handle_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = CU_EVENT_DEFAULT) { REQUIRE_OK(cuEventCreate(&handle_, flags)); }
  ~Event() { cuEventDestroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator CUevent() const { return handle_; }

 private:
  CUevent handle_ = nullptr;
};

// The test module, loaded into the current context.
class Module {
 public:
  Module() { REQUIRE_OK(cuModuleLoad(&handle_, TEST_MODULE_PATH)); }
  ~Module() {
    if (handle_ != nullptr) cuModuleUnload(handle_);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  operator CUmodule() const { return handle_; }
  CUfunction function(const char* name) const {
    CUfunction function = nullptr;
    REQUIRE_OK(cuModuleGetFunction(&function, handle_, name));
    return function;
  }
  CUresult unload() { return cuModuleUnload(std::exchange(handle_, nullptr)); }

 private:
  CUmodule handle_ = nullptr;
};

template <typename... Values>
CUresult launch(CUfunction function, CUstream stream, unsigned grid, Values... values) {
  std::array<void*, sizeof...(Values)> parameters{&values...};
  return cuLaunchKernel(function, grid, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr);
}

// Memory that host and device code share, zero at first.
template <std::size_t Count>
class SharedInts {
 public:
  SharedInts() {
    void* memory = nullptr;
    REQUIRE_OK(cuMemAllocHost(&memory, sizeof(int) * Count));
    values_ = static_cast<int*>(memory);
    for (std::size_t each = 0; each < Count; ++each) values_[each] = 0;
  }
  ~SharedInts() { cuMemFreeHost(values_); }
  SharedInts(const SharedInts&) = delete;
  SharedInts& operator=(const SharedInts&) = delete;
  int* data() const { return values_; }
  int& operator[](std::size_t index) const { return values_[index]; }
  CUdeviceptr address(std::size_t index = 0) const { return reinterpret_cast<CUdeviceptr>(values_ + index); }
  void set(std::size_t index, int value) const { std::atomic_ref<int>(values_[index]).store(value); }
  int get(std::size_t index) const { return std::atomic_ref<int>(values_[index]).load(); }
  void wait_until_set(std::size_t index) const {
    while (get(index) == 0) std::this_thread::yield();
  }

 private:
  int* values_ = nullptr;
};

// Holds a stream at the point where it is made until it is opened.
class Gate {
 public:
  explicit Gate(CUstream stream) {
    REQUIRE_OK(cuLaunchHostFunc(stream, [](void* self) { static_cast<Gate*>(self)->open_.wait(false); }, this));
    REQUIRE_OK(cuEventCreate(&passed_, CU_EVENT_DISABLE_TIMING));
    REQUIRE_OK(cuEventRecord(passed_, stream));
  }
  ~Gate() {
    open();
    cuEventSynchronize(passed_);
    cuEventDestroy(passed_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
  CUevent passed_ = nullptr;
};

inline std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Does the thread wait for others? The state follows the name, which ends with the last bracket.
inline bool is_asleep(pid_t thread) {
  const std::vector<char> text = read_file("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string stat(text.begin(), text.end());
  const std::size_t bracket = stat.rfind(')');
  return bracket != std::string::npos && stat.compare(bracket, 3, ") S") == 0;
}

}  // namespace driver_test
