// User objects: destroyed once, when nobody holds a reference any more, and never under a lock of the driver.
#include <atomic>

#include "test_graph_support.hpp"

using namespace graph_test;

namespace {

// Tells when its destructor has been called, by whom, and how often.
class Counted {
 public:
  explicit Counted(unsigned references = 1) {
    REQUIRE_OK(cuUserObjectCreate(&handle_, this, &destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  operator CUuserObject() const { return handle_; }
  void wait_until_destroyed() const { destroyed_.wait(0); }
  int times_destroyed() const { return destroyed_; }
  CUresult call_inside() const { return call_inside_; }

 private:
  static void destroy(void* data) {
    auto& self = *static_cast<Counted*>(data);
    CUgraph graph = nullptr;
    self.call_inside_ = cuGraphCreate(&graph, 0);
    self.destroyed_.fetch_add(1);
    self.destroyed_.notify_all();
  }

  CUuserObject handle_ = nullptr;
  CUresult call_inside_ = CUDA_SUCCESS;
  std::atomic<int> destroyed_{0};
};

}  // namespace

TEST_CASE("a user object is destroyed with its last reference") {
  const Device device;
  const Counted object(2);
  CHECK_OK(cuUserObjectRetain(object, 3));
  CHECK_OK(cuUserObjectRelease(object, 4));
  CHECK(object.times_destroyed() == 0);
  CHECK_OK(cuUserObjectRelease(object, 1));
  object.wait_until_destroyed();
  CHECK(object.times_destroyed() == 1);
  CHECK(object.call_inside() == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("user objects are made with a destructor, a count and the one flag there is") {
  const Device device;
  CUuserObject object = nullptr;
  const CUhostFn nothing = [](void*) {};
  constexpr unsigned flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
  CHECK(cuUserObjectCreate(&object, nullptr, nullptr, 1, flags) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuUserObjectCreate(&object, nullptr, nothing, 0, flags) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuUserObjectCreate(&object, nullptr, nothing, 1, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a graph, its copies and its executables hold references of their own") {
  const Device device;
  const Stream stream;
  const Counted object;
  Graph graph;
  graph.empty();
  CHECK_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraph copied = nullptr;
  REQUIRE_OK(cuGraphClone(&copied, graph));
  Graph copy(copied);
  Executable executable(copy);
  CHECK_OK(graph.destroy());
  CHECK_OK(copy.destroy());
  CHECK(object.times_destroyed() == 0);
  {
    Gate gate(stream);
    executable.launch(stream);
    CHECK_OK(executable.destroy());
    CHECK(object.times_destroyed() == 0);  // the launch is in flight
  }
  object.wait_until_destroyed();
  REQUIRE_OK(cuStreamSynchronize(stream));
}

TEST_CASE("references of a graph can be released, and are those of the graphs in it") {
  const Device device;
  const Counted object;
  Graph graph, inner;
  CHECK_OK(cuGraphRetainUserObject(inner, object, 2, 0));
  const CUgraphNode node = graph.child({}, inner);
  CHECK_OK(cuUserObjectRelease(object, 1));
  CHECK_OK(cuGraphReleaseUserObject(inner, object, 2));
  CHECK_OK(inner.destroy());
  Executable executable(graph);
  // The executable has its own, whatever becomes of those of the child.
  CUgraph child = nullptr;
  REQUIRE_OK(cuGraphChildGraphNodeGetGraph(node, &child));
  CHECK_OK(cuGraphReleaseUserObject(child, object, 2));
  CHECK_OK(graph.destroy());
  CHECK(object.times_destroyed() == 0);
  CHECK_OK(executable.destroy());
  object.wait_until_destroyed();
}

TEST_CASE("an executable whose child is replaced holds what the new child holds") {
  const Device device;
  const Counted object;
  const Graph innermost, inner, graph;
  innermost.empty();
  inner.child({}, innermost);
  const CUgraphNode node = graph.child({}, inner);
  Executable executable(graph);
  Graph other, holder;
  holder.empty();
  CHECK_OK(cuGraphRetainUserObject(holder, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  other.child({}, holder);
  CHECK_OK(holder.destroy());
  CHECK_OK(cuGraphExecChildGraphNodeSetParams(executable, node, other));
  CHECK_OK(other.destroy());
  CHECK(object.times_destroyed() == 0);
  CHECK_OK(executable.destroy());
  object.wait_until_destroyed();
}

TEST_CASE("an executable that is updated holds what the new graph holds, its launches what they were launched with") {
  const Device device;
  const Stream stream;
  const Counted before, after;
  Graph graph, other;
  graph.empty();
  other.empty();
  CHECK_OK(cuGraphRetainUserObject(graph, before, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CHECK_OK(cuGraphRetainUserObject(other, after, 1, CU_GRAPH_USER_OBJECT_MOVE));
  Executable executable(graph);
  CHECK_OK(graph.destroy());
  {
    Gate gate(stream);
    executable.launch(stream);
    CUgraphExecUpdateResultInfo info{};
    CHECK_OK(cuGraphExecUpdate_v2(executable, other, &info));
    CHECK(before.times_destroyed() == 0);
  }
  before.wait_until_destroyed();
  CHECK_OK(other.destroy());
  CHECK(after.times_destroyed() == 0);
  CHECK_OK(executable.destroy());
  after.wait_until_destroyed();
  REQUIRE_OK(cuStreamSynchronize(stream));
}
