// What the tests of stream capture share beside support.hpp: a capture, the graph it ends in, and what can be asked of
// that.
#pragma once
#include <vector>

#include "support.hpp"

namespace capture_test {

using namespace driver_test;

// A graph that is destroyed in the end.
class Graph {
 public:
  Graph() = default;
  explicit Graph(CUgraph handle) : handle_(handle) {}
  ~Graph() {
    if (handle_ != nullptr) cuGraphDestroy(handle_);
  }
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&&) = delete;
  operator CUgraph() const { return handle_; }

  std::vector<CUgraphNode> nodes() const {
    std::size_t count = 0;
    REQUIRE_OK(cuGraphGetNodes(handle_, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    if (count > 0) REQUIRE_OK(cuGraphGetNodes(handle_, nodes.data(), &count));
    return nodes;
  }
  // The one node of the type.
  CUgraphNode node(CUgraphNodeType type) const {
    CUgraphNode found = nullptr;
    for (const CUgraphNode node : nodes()) {
      if (type_of(node) != type) continue;
      REQUIRE(found == nullptr);
      found = node;
    }
    REQUIRE(found != nullptr);
    return found;
  }
  std::size_t edge_count() const {
    std::size_t count = 0;
    REQUIRE_OK(cuGraphGetEdges_v2(handle_, nullptr, nullptr, nullptr, &count));
    return count;
  }

  static CUgraphNodeType type_of(CUgraphNode node) {
    CUgraphNodeType type{};
    REQUIRE_OK(cuGraphNodeGetType(node, &type));
    return type;
  }
  static std::vector<CUgraphNode> dependencies_of(CUgraphNode node) {
    std::size_t count = 0;
    REQUIRE_OK(cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count));
    std::vector<CUgraphNode> dependencies(count);
    if (count > 0) REQUIRE_OK(cuGraphNodeGetDependencies_v2(node, dependencies.data(), nullptr, &count));
    return dependencies;
  }

  // Runs it once, to its end.
  void run(CUstream stream) const {
    CUgraphExec executable = nullptr;
    REQUIRE_OK(cuGraphInstantiate(&executable, handle_, 0));
    REQUIRE_OK(cuGraphLaunch(executable, stream));
    REQUIRE_OK(cuStreamSynchronize(stream));
    REQUIRE_OK(cuGraphExecDestroy(executable));
  }

 private:
  CUgraph handle_ = nullptr;
};

inline void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
  REQUIRE_OK(cuStreamBeginCapture(stream, mode));
}

inline Graph end(CUstream stream) {
  CUgraph handle = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &handle));
  REQUIRE(handle != nullptr);
  return Graph(handle);
}

// How a capture ends that cannot succeed.
inline CUresult end_in_vain(CUstream stream) {
  CUgraph handle = reinterpret_cast<CUgraph>(0x1);
  const CUresult result = cuStreamEndCapture(stream, &handle);
  CHECK(handle == nullptr);
  return result;
}

inline CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status{};
  REQUIRE_OK(cuStreamIsCapturing(stream, &status));
  return status;
}

// All that a stream tells of its capture.
struct Info {
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* data = nullptr;
  std::size_t count = 0;
};

inline Info info_of(CUstream stream) {
  Info info;
  REQUIRE_OK(
      cuStreamGetCaptureInfo_v3(stream, &info.status, &info.id, &info.graph, &info.nodes, &info.data, &info.count));
  return info;
}

// The nodes that the next one in the stream will depend on.
inline std::vector<CUgraphNode> dependencies_of_next(CUstream stream) {
  const Info info = info_of(stream);
  REQUIRE(info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  return {info.nodes, info.nodes + info.count};
}

inline CUgraphNode only_dependency_of_next(CUstream stream) {
  const auto nodes = dependencies_of_next(stream);
  REQUIRE(nodes.size() == 1);
  return nodes.front();
}

// Makes `to` wait for what has been submitted to `from`.
inline void join(CUstream from, CUstream to) {
  const Event event;
  REQUIRE_OK(cuEventRecord(event, from));
  REQUIRE_OK(cuStreamWaitEvent(to, event, 0));
}

// Device memory that is freed in the end.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { REQUIRE_OK(cuMemAlloc(&address_, bytes)); }
  ~DeviceMemory() { cuMemFree(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  operator CUdeviceptr() const { return address_; }

 private:
  CUdeviceptr address_ = 0;
};

}  // namespace capture_test
