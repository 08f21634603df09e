// Stream capture across streams: forks and joins by events, streams and events that go, and how a capture ends.
#include "test_capture_support.hpp"

using namespace capture_test;

TEST_CASE("a fork takes another stream into the capture, and a join orders what follows after both") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  REQUIRE_OK(launch(nothing, origin, 1));
  const CUgraphNode first = only_dependency_of_next(origin);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);
  join(origin, branch);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(info_of(branch).id == info_of(origin).id);
  REQUIRE_OK(launch(nothing, branch, 1));
  const CUgraphNode forked = only_dependency_of_next(branch);
  REQUIRE_OK(launch(nothing, origin, 1));
  const CUgraphNode second = only_dependency_of_next(origin);
  join(branch, origin);
  REQUIRE_OK(launch(nothing, origin, 1));
  const CUgraphNode last = only_dependency_of_next(origin);
  const Graph graph = end(origin);
  CHECK(status_of(origin) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(graph.nodes().size() == 4);
  CHECK(Graph::dependencies_of(forked) == std::vector<CUgraphNode>{first});
  CHECK(Graph::dependencies_of(second) == std::vector<CUgraphNode>{first});
  CHECK(Graph::dependencies_of(last) == std::vector<CUgraphNode>{second, forked});
  CHECK(graph.edge_count() == 4);
}

TEST_CASE("what was captured in two streams runs in the order of its edges") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  const SharedInts<8> out;
  const CUfunction add = module.function("add");
  begin(origin);
  REQUIRE_OK(launch(add, origin, 1, out.data(), 1));
  join(origin, branch);
  REQUIRE_OK(launch(add, branch, 1, out.data() + 1, 10));
  REQUIRE_OK(launch(add, origin, 1, out.data(), 100));
  join(branch, origin);
  REQUIRE_OK(cuMemcpyAsync(out.address(2), out.address(0), 8, origin));
  const Graph graph = end(origin);
  graph.run(origin);
  CHECK(out[2] == 101);
  CHECK(out[3] == 10);
  // The streams are as they were before.
  REQUIRE_OK(launch(add, branch, 1, out.data(), 1));
  CHECK_OK(cuStreamSynchronize(branch));
  CHECK(out[0] == 102);
}

TEST_CASE("an event stands for what was captured before its record, however often it is waited for") {
  const Device device;
  const Module module;
  const Stream origin, branch, second_branch;
  const Event event;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  REQUIRE_OK(launch(nothing, origin, 1));
  const CUgraphNode first = only_dependency_of_next(origin);
  REQUIRE_OK(cuEventRecord(event, origin));
  REQUIRE_OK(launch(nothing, origin, 1));
  REQUIRE_OK(cuStreamWaitEvent(branch, event, 0));
  REQUIRE_OK(cuStreamWaitEvent(branch, event, 0));
  REQUIRE_OK(cuStreamWaitEvent(second_branch, event, 0));
  CHECK(dependencies_of_next(branch) == std::vector<CUgraphNode>{first});
  CHECK(dependencies_of_next(second_branch) == std::vector<CUgraphNode>{first});
  REQUIRE_OK(cuEventRecord(event, branch));  // again, elsewhere
  REQUIRE_OK(cuStreamWaitEvent(origin, event, 0));
  const Graph graph = end(origin);
  CHECK(graph.nodes().size() == 2);
}

TEST_CASE("forks of forks are joined through the streams between") {
  const Device device;
  const Module module;
  const Stream origin, middle, far;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  join(origin, middle);
  join(middle, far);
  REQUIRE_OK(launch(nothing, far, 1));
  join(far, middle);
  REQUIRE_OK(launch(nothing, middle, 1));
  join(middle, origin);
  const Graph graph = end(origin);
  CHECK(graph.nodes().size() == 2);
  CHECK(graph.edge_count() == 1);
}

TEST_CASE("a fork that captured nothing needs no join, and one that did does") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  const CUfunction nothing = module.function("nothing");
  begin(origin);
  REQUIRE_OK(launch(nothing, origin, 1));
  join(origin, branch);
  REQUIRE_OK(launch(nothing, origin, 1));
  CHECK(end(origin).nodes().size() == 2);

  begin(origin);
  join(origin, branch);
  REQUIRE_OK(launch(nothing, branch, 1));
  CHECK(end_in_vain(origin) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(status_of(origin) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);

  begin(origin);
  join(origin, branch);
  REQUIRE_OK(launch(nothing, branch, 1));
  join(branch, origin);
  REQUIRE_OK(launch(nothing, branch, 1));  // behind the join
  CHECK(end_in_vain(origin) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK_OK(cuStreamSynchronize(branch));
}

TEST_CASE("a capture ends in the stream where it began") {
  const Device device;
  const Stream origin, branch, bystander;
  begin(origin);
  join(origin, branch);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(bystander, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamEndCapture(bystander, nullptr) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamEndCapture(nullptr, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(status_of(origin) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(end_in_vain(branch) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(end_in_vain(origin) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("a capture that nobody asks for the graph of is thrown away") {
  const Device device;
  const Stream stream;
  begin(stream);
  const CUgraph graph = info_of(stream).graph;
  CHECK_OK(cuStreamEndCapture(stream, nullptr));
  CHECK(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  std::size_t count = 0;
  CHECK(cuGraphGetNodes(graph, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a stream is in one capture at a time") {
  const Device device;
  const Stream origin, branch;
  begin(origin);
  join(origin, branch);
  CHECK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(cuStreamBeginCapture(branch, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(end(origin).nodes().empty());
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuStreamBeginCapture(origin, static_cast<CUstreamCaptureMode>(3)) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("two captures go on side by side and cannot be merged") {
  const Device device;
  const Module module;
  const Stream first, second, branch;
  const CUfunction nothing = module.function("nothing");
  begin(first);
  begin(second);
  CHECK(info_of(first).id != info_of(second).id);
  REQUIRE_OK(launch(nothing, first, 1));
  REQUIRE_OK(launch(nothing, second, 1));
  CHECK(end(first).nodes().size() == 1);
  CHECK(end(second).nodes().size() == 1);

  begin(first);
  begin(second);
  join(first, branch);
  const Event event;
  REQUIRE_OK(cuEventRecord(event, branch));
  CHECK(cuStreamWaitEvent(second, event, 0) == CUDA_ERROR_STREAM_CAPTURE_MERGE);
  CHECK(end_in_vain(first) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(end_in_vain(second) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("a captured stream cannot wait for work that is not captured") {
  const Device device;
  const Stream stream, outside;
  const Event event;
  REQUIRE_OK(cuEventRecord(event, outside));
  begin(stream);
  CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(end_in_vain(stream) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_CASE("an event that was never recorded orders nothing in a capture, either") {
  const Device device;
  const Stream stream;
  const Event event;
  begin(stream);
  CHECK_OK(cuStreamWaitEvent(stream, event, 0));
  CHECK(end(stream).nodes().empty());
}

TEST_CASE("an event of a capture that is over can be waited for once it has been recorded again") {
  const Device device;
  const Stream stream, other;
  const Event event;
  begin(stream);
  REQUIRE_OK(cuEventRecord(event, stream));
  const Graph graph = end(stream);
  CHECK(cuStreamWaitEvent(other, event, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuEventQuery(event) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuEventSynchronize(event) == CUDA_ERROR_INVALID_VALUE);
  begin(other);
  CHECK(cuStreamWaitEvent(other, event, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(end_in_vain(other) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE_OK(cuEventRecord(event, stream));
  CHECK_OK(cuStreamWaitEvent(other, event, 0));
  CHECK_OK(cuEventSynchronize(event));
}

TEST_CASE("streams of other devices take part in a capture") {
  const Device peer(1);
  const Module peer_module;
  const Stream branch;
  const CUfunction add_there = peer_module.function("add");
  const Device device(0);
  const Module module;
  const Stream origin;
  const SharedInts<2> out;
  begin(origin);
  REQUIRE_OK(launch(module.function("add"), origin, 1, out.data(), 1));
  const Event forked;
  REQUIRE_OK(cuEventRecord(forked, origin));
  REQUIRE_OK(cuStreamWaitEvent(branch, forked, 0));
  peer.make_current();
  REQUIRE_OK(launch(add_there, branch, 1, out.data() + 1, 2));
  const Event joined;
  REQUIRE_OK(cuEventRecord(joined, branch));
  device.make_current();
  REQUIRE_OK(cuStreamWaitEvent(origin, joined, 0));
  const Graph graph = end(origin);
  CHECK(graph.nodes().size() == 2);
  graph.run(origin);
  CHECK(out[0] == 1);
  CHECK(out[1] == 2);
}

TEST_CASE("a stream destroyed in a capture leaves what it captured to the others") {
  const Device device;
  const Module module;
  const Stream origin;
  const CUfunction nothing = module.function("nothing");
  for (const bool is_joined : {true, false}) {
    CAPTURE(is_joined);
    CUstream branch = nullptr;
    REQUIRE_OK(cuStreamCreate(&branch, CU_STREAM_NON_BLOCKING));
    begin(origin);
    join(origin, branch);
    REQUIRE_OK(launch(nothing, branch, 1));
    const Event event;
    REQUIRE_OK(cuEventRecord(event, branch));
    CHECK_OK(cuStreamDestroy(branch));
    CHECK(status_of(origin) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    if (is_joined) {
      REQUIRE_OK(cuStreamWaitEvent(origin, event, 0));
      CHECK(end(origin).nodes().size() == 1);
    } else {
      CHECK(end_in_vain(origin) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
  }
}

TEST_CASE("with its origin a capture is destroyed, and the other streams are free") {
  const Device device;
  const Stream branch;
  CUstream origin = nullptr;
  REQUIRE_OK(cuStreamCreate(&origin, CU_STREAM_NON_BLOCKING));
  begin(origin, CU_STREAM_CAPTURE_MODE_GLOBAL);
  const CUgraph graph = info_of(origin).graph;
  join(origin, branch);
  CHECK_OK(cuStreamDestroy(origin));
  CHECK(status_of(branch) == CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_OK(cuStreamSynchronize(branch));
  std::size_t count = 0;
  CHECK(cuGraphGetNodes(graph, nullptr, &count) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a capture is destroyed with its context") {
  CUcontext context = nullptr;
  REQUIRE_OK(cuInit(0));
  REQUIRE_OK(cuCtxCreate_v4(&context, nullptr, 0, 0));
  CUstream stream = nullptr;
  REQUIRE_OK(cuStreamCreate(&stream, 0));
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_OK(cuCtxDestroy(context));
  // No capture prohibits anything any more.
  const Device device;
  const DeviceMemory memory(16);
}

TEST_CASE("an event destroyed in a capture leaves its fork and its join") {
  const Device device;
  const Module module;
  const Stream origin, branch;
  begin(origin);
  join(origin, branch);  // the event is gone afterwards
  REQUIRE_OK(launch(module.function("nothing"), branch, 1));
  join(branch, origin);
  CHECK(end(origin).nodes().size() == 1);
}
