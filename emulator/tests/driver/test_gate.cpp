// A free that waits for the device holds back what other threads begin in its context; see gate.hpp.
#include <unistd.h>

#include <functional>
#include <memory>

#include "support.hpp"

using namespace driver_test;

namespace {

struct Call {
  const char* name;
  std::function<CUresult()> make;
};

// What the calls use. `held` is a kernel that waits for shared[0].
struct Scene {
  Device device;
  Module module;
  Stream busy, idle;
  Event event;
  SharedInts<4> shared;
  CUdeviceptr memory = 0, victim = 0;
  void* host = nullptr;
  alignas(4096) std::array<char, 4096> own{};
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;

  Scene() {
    REQUIRE_OK(cuMemAlloc(&memory, 256));
    REQUIRE_OK(cuMemAlloc(&victim, 256));
    REQUIRE_OK(cuMemAllocHost(&host, 256));
    REQUIRE_OK(cuMemHostRegister(own.data(), own.size(), 0));
    REQUIRE_OK(cuGraphCreate(&graph, 0));
    REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
    REQUIRE_OK(cuStreamSynchronize(idle));
    REQUIRE_OK(launch(module.function("wait_for"), busy, 1, shared.data(), shared.data() + 1));
    shared.wait_until_set(1);
  }
  ~Scene() {
    release();
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
  }
  void release() const { shared.set(0, 1); }

  std::vector<Call> frees() {
    return {{"cuMemFree", [this] { return cuMemFree(victim); }},
            {"cuMemFreeHost", [this] { return cuMemFreeHost(host); }},
            {"cuMemHostUnregister", [this] { return cuMemHostUnregister(own.data()); }}};
  }
  std::vector<Call> calls_held_back() {
    const CUfunction store = module.function("store");
    return {
        {"cuLaunchKernel", [this, store] { return launch(store, idle, 1, shared.data() + 2, 5); }},
        {"cuGraphLaunch", [this] { return cuGraphLaunch(executable, idle); }},
        {"cuMemsetD8Async", [this] { return cuMemsetD8Async(memory, 1, 256, idle); }},
        {"cuMemcpyDtoDAsync", [this] { return cuMemcpyDtoDAsync(memory, memory + 128, 64, idle); }},
        {"cuEventRecord", [this] { return cuEventRecord(event, idle); }},
        {"cuMemAlloc",
         [] {
           CUdeviceptr made = 0;
           return cuMemAlloc(&made, 256);
         }},
        {"cuMemHostAlloc",
         [] {
           void* made = nullptr;
           return cuMemHostAlloc(&made, 256, 0);
         }},
        {"cuStreamCreate",
         [] {
           CUstream made = nullptr;
           return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
         }},
        {"cuEventCreate",
         [] {
           CUevent made = nullptr;
           return cuEventCreate(&made, CU_EVENT_DEFAULT);
         }},
        {"cuModuleLoad",
         [] {
           CUmodule made = nullptr;
           return cuModuleLoad(&made, TEST_MODULE_PATH);
         }},
    };
  }
  std::vector<Call> calls_that_go_on() {
    return {
        {"cuStreamQuery", [this] { return cuStreamQuery(idle); }},
        {"cuEventQuery", [this] { return cuEventQuery(event); }},
        {"cuStreamWaitEvent", [this] { return cuStreamWaitEvent(idle, event, 0); }},
        {"cuStreamWriteValue32", [this] { return cuStreamWriteValue32(idle, shared.address(3), 1, 0); }},
        {"cuMemAllocAsync",
         [this] {
           CUdeviceptr made = 0;
           return cuMemAllocAsync(&made, 256, idle);
         }},
    };
  }
};

// A thread with the context current that makes one call. At its end it lets the held kernel go, whatever a test found.
class Caller {
 public:
  Caller(const Scene& scene, std::function<CUresult()> call)
      : scene_(scene), thread_([this, &scene, call = std::move(call)] {
          CUresult result = cuCtxSetCurrent(scene.device.context());
          id_ = gettid();
          if (result == CUDA_SUCCESS) result = call();
          result_ = result;
          returned_ = true;
        }) {}
  ~Caller() {
    scene_.release();
    thread_.join();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Until the call has returned or stands still.
  bool stands_still() const {
    while (id_ == 0) std::this_thread::yield();
    while (!returned_ && !is_asleep(id_)) std::this_thread::yield();
    return !returned_;
  }
  CUresult result() const {
    while (!returned_) std::this_thread::yield();
    return result_;
  }

 private:
  const Scene& scene_;
  std::atomic<pid_t> id_{0};
  std::atomic<bool> returned_{false};
  std::atomic<CUresult> result_{CUDA_SUCCESS};
  std::thread thread_;
};

}  // namespace

TEST_CASE("each free that waits for a kernel holds back the launches of other threads") {
  for (std::size_t each = 0; each < 3; ++each) {
    Scene scene;
    const Call free = scene.frees()[each], call = scene.calls_held_back().front();
    CAPTURE(free.name);
    const Caller freeing(scene, free.make);
    REQUIRE(freeing.stands_still());
    const Caller launching(scene, call.make);
    CHECK(launching.stands_still());
    scene.release();
    CHECK_OK(freeing.result());
    CHECK_OK(launching.result());
  }
}

TEST_CASE("a free that waits for a kernel holds back what begins something, and nothing else") {
  Scene scene;
  const Caller freeing(scene, scene.frees().front().make);
  REQUIRE(freeing.stands_still());
  for (const Call& call : scene.calls_that_go_on()) {
    CAPTURE(call.name);
    CHECK_OK(call.make());
  }
  std::vector<std::unique_ptr<Caller>> held_back;
  for (const Call& call : scene.calls_held_back()) {
    CAPTURE(call.name);
    held_back.push_back(std::make_unique<Caller>(scene, call.make));
    CHECK(held_back.back()->stands_still());
  }
  scene.release();
  for (const auto& each : held_back) CHECK_OK(each->result());
}

TEST_CASE("a free holds back nobody in another context") {
  Scene scene;
  const Caller freeing(scene, scene.frees().front().make);
  REQUIRE(freeing.stands_still());
  const Device other(1);
  CUdeviceptr memory = 0;
  REQUIRE_OK(cuMemAlloc(&memory, 256));
  CHECK_OK(cuMemsetD8(memory, 0, 256));
  REQUIRE_OK(cuMemFree(memory));
  scene.device.make_current();
}

TEST_CASE("those that a free holds back learn that the context was lost meanwhile") {
  Scene scene;
  const SharedInts<2> other;
  const Stream stream;
  REQUIRE_OK(launch(scene.module.function("wait_for"), stream, 1, other.data(), other.data() + 1));
  REQUIRE_OK(launch(scene.module.function("fail"), stream, 1, static_cast<int>(CUDA_ERROR_LAUNCH_FAILED)));
  const Caller freeing(scene, scene.frees().front().make);
  REQUIRE(freeing.stands_still());
  const Caller launching(scene, scene.calls_held_back().front().make);
  CHECK(launching.stands_still());
  other.set(0, 1);
  CHECK(freeing.result() == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(launching.result() == CUDA_ERROR_LAUNCH_FAILED);
  scene.release();
}
