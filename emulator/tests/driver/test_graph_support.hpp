// What the tests of graphs share: owners of graphs and executables, and short ways to describe nodes.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "support.hpp"

namespace graph_test {

using driver_test::Device;
using driver_test::Event;
using driver_test::Gate;
using driver_test::Module;
using driver_test::SharedInts;
using driver_test::Stream;

using Nodes = std::vector<CUgraphNode>;

// The parameters of a kernel node, and the arguments it takes.
template <typename... Values>
class KernelNode {
 public:
  KernelNode(CUfunction function, unsigned grid, Values... values) : values_(values...) {
    std::apply([&](auto&... each) { pointers_ = {&each...}; }, values_);
    parameters.func = function;
    parameters.gridDimX = grid;
    parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = pointers_.data();
  }
  KernelNode(const KernelNode&) = delete;
  KernelNode& operator=(const KernelNode&) = delete;
  CUDA_KERNEL_NODE_PARAMS parameters{};

 private:
  std::tuple<Values...> values_;
  std::array<void*, sizeof...(Values)> pointers_{};
};

inline CUcontext current_context() {
  CUcontext context = nullptr;
  REQUIRE_OK(cuCtxGetCurrent(&context));
  return context;
}

inline CUDA_MEMCPY3D linear_copy(CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = source;
  copy.dstDevice = destination;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

inline CUDA_MEMSET_NODE_PARAMS fill_of_ints(CUdeviceptr destination, unsigned value, std::size_t count) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = destination;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = count;
  fill.height = 1;
  return fill;
}

class Graph {
 public:
  Graph() { REQUIRE_OK(cuGraphCreate(&handle_, 0)); }
  explicit Graph(CUgraph handle) : handle_(handle) {}
  ~Graph() {
    if (handle_ != nullptr) cuGraphDestroy(handle_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  operator CUgraph() const { return handle_; }
  CUresult destroy() { return cuGraphDestroy(std::exchange(handle_, nullptr)); }

  CUgraphNode empty(const Nodes& after = {}) const {
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddEmptyNode(&node, handle_, after.data(), after.size()));
    return node;
  }
  template <typename... Values>
  CUgraphNode kernel(const Nodes& after, CUfunction function, unsigned grid, Values... values) const {
    const KernelNode<Values...> described(function, grid, values...);
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddKernelNode(&node, handle_, after.data(), after.size(), &described.parameters));
    return node;
  }
  CUgraphNode copy(const Nodes& after, CUdeviceptr destination, CUdeviceptr source, std::size_t bytes) const {
    const CUDA_MEMCPY3D described = linear_copy(destination, source, bytes);
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddMemcpyNode(&node, handle_, after.data(), after.size(), &described, current_context()));
    return node;
  }
  CUgraphNode fill(const Nodes& after, CUdeviceptr destination, unsigned value, std::size_t count) const {
    const CUDA_MEMSET_NODE_PARAMS described = fill_of_ints(destination, value, count);
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddMemsetNode(&node, handle_, after.data(), after.size(), &described, current_context()));
    return node;
  }
  CUgraphNode host(const Nodes& after, CUhostFn function, void* data) const {
    const CUDA_HOST_NODE_PARAMS described{function, data};
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddHostNode(&node, handle_, after.data(), after.size(), &described));
    return node;
  }
  CUgraphNode child(const Nodes& after, CUgraph graph) const {
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddChildGraphNode(&node, handle_, after.data(), after.size(), graph));
    return node;
  }
  CUgraphNode record(const Nodes& after, CUevent event) const {
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddEventRecordNode(&node, handle_, after.data(), after.size(), event));
    return node;
  }
  CUgraphNode wait(const Nodes& after, CUevent event) const {
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddEventWaitNode(&node, handle_, after.data(), after.size(), event));
    return node;
  }
  CUgraphNode allocate(const Nodes& after, std::size_t bytes, CUdeviceptr& address, CUdevice device = 0) const {
    CUDA_MEM_ALLOC_NODE_PARAMS described{};
    described.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    described.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    described.bytesize = bytes;
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddMemAllocNode(&node, handle_, after.data(), after.size(), &described));
    address = described.dptr;
    return node;
  }
  CUgraphNode free(const Nodes& after, CUdeviceptr address) const {
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddMemFreeNode(&node, handle_, after.data(), after.size(), address));
    return node;
  }
  Nodes nodes() const {
    std::size_t count = 0;
    REQUIRE_OK(cuGraphGetNodes(handle_, nullptr, &count));
    Nodes found(count);
    REQUIRE_OK(cuGraphGetNodes(handle_, found.data(), &count));
    return found;
  }

 private:
  CUgraph handle_ = nullptr;
};

class Executable {
 public:
  explicit Executable(CUgraph graph, unsigned long long flags = 0) {
    REQUIRE_OK(cuGraphInstantiateWithFlags(&handle_, graph, flags));
  }
  ~Executable() {
    if (handle_ != nullptr) cuGraphExecDestroy(handle_);
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  operator CUgraphExec() const { return handle_; }
  CUresult destroy() { return cuGraphExecDestroy(std::exchange(handle_, nullptr)); }

  void launch(CUstream stream) const { REQUIRE_OK(cuGraphLaunch(handle_, stream)); }
  void run(CUstream stream) const {
    launch(stream);
    REQUIRE_OK(cuStreamSynchronize(stream));
  }

 private:
  CUgraphExec handle_ = nullptr;
};

// Memory of the current context.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { REQUIRE_OK(cuMemAlloc(&address_, bytes)); }
  ~Memory() { cuMemFree(address_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

inline std::vector<int> read_ints(CUdeviceptr address, std::size_t count) {
  std::vector<int> values(count);
  REQUIRE_OK(cuMemcpyDtoH(values.data(), address, count * sizeof(int)));
  return values;
}

// A log that kernels append to (see test_module.cpp), one after the other: which of them ran, in which order.
class Log {
 public:
  int* data() const { return ints_.data(); }
  std::vector<int> entries() const { return {ints_.data() + 1, ints_.data() + 1 + ints_[0]}; }

 private:
  SharedInts<256> ints_;
};

// The exit status of this program, run again with other settings for the cases of a name, which are skipped otherwise:
// what a process checks and injects is settled when it starts.
inline int run_again(const std::string& settings, const std::string& cases) {
  char path[PATH_MAX] = {};
  REQUIRE(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
  const std::string command = settings + " timeout 120 " + path + " --no-skip --test-case='" + cases + "'";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace graph_test
