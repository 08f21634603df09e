// What each type of node is described by: the parameters are checked, copied, given back, and can be set.
#include <algorithm>
#include <cstring>

#include "test_graph_support.hpp"

#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
// The forms of CUDA 10, which cuda.h hides behind the newer ones.
extern "C" {
CUresult cuGraphAddKernelNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                              const CUDA_KERNEL_NODE_PARAMS_v1*);
CUresult cuGraphKernelNodeGetParams(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*);
CUresult cuGraphKernelNodeSetParams(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1*);
}

using namespace graph_test;

namespace {

CUresult add_kernel(CUgraph graph, const CUDA_KERNEL_NODE_PARAMS& parameters) {
  CUgraphNode node = nullptr;
  return cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters);
}

CUresult add_fill(CUgraph graph, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  CUgraphNode node = nullptr;
  return cuGraphAddMemsetNode(&node, graph, nullptr, 0, &parameters, current_context());
}

CUresult add_copy(CUgraph graph, const CUDA_MEMCPY3D& parameters) {
  CUgraphNode node = nullptr;
  return cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &parameters, current_context());
}

CUlaunchAttributeValue get(CUgraphNode node, CUlaunchAttributeID attribute) {
  CUlaunchAttributeValue value{};
  CHECK_OK(cuGraphKernelNodeGetAttribute(node, attribute, &value));
  return value;
}

CUresult set_cooperative(CUgraphNode node, int cooperative) {
  CUlaunchAttributeValue value{};
  value.cooperative = cooperative;
  return cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
}

CUstreamBatchMemOpParams write_of(CUdeviceptr address, unsigned value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address;
  operation.writeValue.value = value;
  return operation;
}

}  // namespace

TEST_CASE("a kernel node keeps a copy of its arguments and gives it back") {
  const Device device;
  const Module module;
  const SharedInts<4> out;
  const Graph graph;
  CUgraphNode node = nullptr;
  {
    int* pointer = out.data();
    int value = 3;
    KernelNode described(module.function("add"), 4, pointer, value);
    REQUIRE_OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &described.parameters));
  }
  CUDA_KERNEL_NODE_PARAMS found{};
  REQUIRE_OK(cuGraphKernelNodeGetParams_v2(node, &found));
  CHECK(found.func == module.function("add"));
  CHECK(found.kern == nullptr);
  CHECK(found.ctx == device.context());
  CHECK(found.gridDimX == 4);
  CHECK(found.extra == nullptr);
  CHECK(*static_cast<int**>(found.kernelParams[0]) == out.data());
  CHECK(*static_cast<int*>(found.kernelParams[1]) == 3);
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(out[3] == 3);
  // The answer can be changed and given back to a node.
  int other = 10;
  std::array<void*, 2> changed{found.kernelParams[0], &other};
  found.kernelParams = changed.data();
  CHECK_OK(cuGraphKernelNodeSetParams_v2(node, &found));
  Executable(graph).run(stream);
  CHECK(out[3] == 13);
}

TEST_CASE("a kernel node takes packed arguments, and a kernel of a library") {
  const Device device;
  CUlibrary library = nullptr;
  REQUIRE_OK(cuLibraryLoadFromFile(&library, TEST_MODULE_PATH, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  REQUIRE_OK(cuLibraryGetKernel(&kernel, library, "add"));
  const SharedInts<1> out;
  struct {
    int* pointer;
    int value;
  } packed{out.data(), 5};
  std::size_t bytes = sizeof packed.pointer + sizeof packed.value;
  std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                             CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS described{};
  described.kern = kernel;
  described.gridDimX = described.gridDimY = described.gridDimZ = 1;
  described.blockDimX = described.blockDimY = described.blockDimZ = 1;
  described.extra = extra.data();
  {
    const Graph graph;
    CUgraphNode node = nullptr;
    REQUIRE_OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &described));
    packed.value = 100;
    CUDA_KERNEL_NODE_PARAMS found{};
    REQUIRE_OK(cuGraphKernelNodeGetParams_v2(node, &found));
    CHECK(found.kern == kernel);
    CHECK(found.kernelParams == nullptr);
    const auto names_buffer = std::find(found.extra, found.extra + 4, CU_LAUNCH_PARAM_BUFFER_POINTER);
    CHECK(static_cast<const int*>(names_buffer[1])[2] == 5);
    CHECK_OK(cuGraphKernelNodeSetParams_v2(node, &described));
    described.func = reinterpret_cast<CUfunction>(kernel);  // as cuLaunchKernel takes it
    CHECK(cuGraphKernelNodeSetParams_v2(node, &described) == CUDA_ERROR_INVALID_HANDLE);
    const Stream stream;
    Executable(graph).run(stream);
    CHECK(out[0] == 100);
  }
  CHECK_OK(cuLibraryUnload(library));
}

TEST_CASE("the former functions of kernel nodes know functions only") {
  const Device device;
  const Module module;
  const SharedInts<1> out;
  int* pointer = out.data();
  int value = 2;
  std::array<void*, 2> arguments{&pointer, &value};
  CUDA_KERNEL_NODE_PARAMS_v1 described{module.function("add"), 1, 1, 1, 1, 1, 1, 0, arguments.data(), nullptr};
  const Graph graph;
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddKernelNode(&node, graph, nullptr, 0, &described));
  CUDA_KERNEL_NODE_PARAMS_v1 found{};
  CHECK_OK(cuGraphKernelNodeGetParams(node, &found));
  CHECK(found.func == described.func);
  value = 7;
  CHECK_OK(cuGraphKernelNodeSetParams(node, &described));
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(out[0] == 7);
}

TEST_CASE("kernel nodes that could not be launched are refused") {
  const Device device;
  const Module module;
  const Graph graph;
  const CUfunction nothing = module.function("nothing");
  KernelNode<> described(nothing, 1);
  CUDA_KERNEL_NODE_PARAMS& parameters = described.parameters;
  CHECK_OK(add_kernel(graph, parameters));
  parameters.gridDimY = 0;
  CHECK(add_kernel(graph, parameters) == CUDA_ERROR_INVALID_VALUE);
  parameters.gridDimY = 1;
  parameters.blockDimX = 2000;
  CHECK(add_kernel(graph, parameters) == CUDA_ERROR_INVALID_VALUE);
  parameters.blockDimX = 1;
  parameters.sharedMemBytes = 1 << 20;
  CHECK(add_kernel(graph, parameters) != CUDA_SUCCESS);
  parameters.sharedMemBytes = 0;
  parameters.func = nullptr;
  CHECK(add_kernel(graph, parameters) == CUDA_ERROR_INVALID_HANDLE);
  parameters.func = module.function("add");
  parameters.kernelParams = nullptr;
  CHECK(add_kernel(graph, parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes().size() == 1);
}

TEST_CASE("the attributes of a kernel node are kept, copied, and hold when its parameters are set") {
  const Device device;
  const Module module;
  const Graph graph;
  const CUfunction nothing = module.function("nothing");
  const CUgraphNode one = graph.kernel({}, nothing, 1), other = graph.kernel({}, nothing, 1);
  const CUgraphNode fill = graph.empty();
  CHECK(get(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative == 0);
  CHECK(get(one, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).memSyncDomainMap.remote == 1);
  CHECK_OK(set_cooperative(one, 1));
  CUlaunchAttributeValue value{};
  value.priority = -3;
  CHECK_OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  value = {};
  value.clusterDim = {1, 1, 1};
  CHECK_OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  value.clusterDim = {2, 1, 1};  // which does not divide the grid
  CHECK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) ==
        CUDA_ERROR_INVALID_CLUSTER_SIZE);
  KernelNode<> same(module.function("nothing"), 2);
  CHECK_OK(cuGraphKernelNodeSetParams_v2(one, &same.parameters));
  CHECK(get(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative == 1);
  CHECK_OK(cuGraphKernelNodeCopyAttributes(other, one));
  CHECK(get(other, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative == 1);
  CHECK(get(other, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority == -3);
  CHECK(get(other, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim.x == 1);
  CHECK(cuGraphKernelNodeCopyAttributes(fill, one) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphKernelNodeGetAttribute(fill, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphKernelNodeGetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a cooperative kernel node must fit on the device at once") {
  const Device device;
  const Module module;
  const Graph graph;
  const CUgraphNode node = graph.kernel({}, module.function("nothing"), 100000);
  CHECK(set_cooperative(node, 1) == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK(get(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative == 0);
}

TEST_CASE("memset nodes have elements of one, two or four bytes, in one dimension or two") {
  const Device device;
  const Memory memory(256);
  const Graph graph;
  CUDA_MEMSET_NODE_PARAMS fill = fill_of_ints(memory, 0x01020304, 4);
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, device.context()));
  CUDA_MEMSET_NODE_PARAMS found{};
  CHECK_OK(cuGraphMemsetNodeGetParams(node, &found));
  CHECK(found.value == 0x01020304);
  CHECK(found.width == 4);
  fill.elementSize = 2;
  fill.value = 0x0506;
  fill.height = 2;
  fill.pitch = 32;
  CHECK_OK(cuGraphMemsetNodeSetParams(node, &fill));
  REQUIRE_OK(cuMemsetD8(memory, 0, 256));
  REQUIRE_OK(cuCtxSynchronize());
  const Stream stream;
  Executable(graph).run(stream);
  std::vector<int> expected(16, 0);
  for (const std::size_t place : {0u, 1u, 8u, 9u}) expected[place] = 0x05060506;
  CHECK(read_ints(memory, 16) == expected);
}

TEST_CASE("memset nodes that could not run are refused") {
  const Device device;
  const Memory memory(256);
  const Graph graph;
  const CUDA_MEMSET_NODE_PARAMS right = fill_of_ints(memory, 1, 4);
  CUDA_MEMSET_NODE_PARAMS wrong = right;
  for (const unsigned bytes : {0u, 3u, 8u}) {
    wrong.elementSize = bytes;
    CHECK(add_fill(graph, wrong) == CUDA_ERROR_INVALID_VALUE);
  }
  wrong = right;
  wrong.width = 65;
  CHECK(add_fill(graph, wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.width = 0;
  CHECK(add_fill(graph, wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.dst += 1;
  CHECK(add_fill(graph, wrong) == CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  int on_host = 0;
  wrong.dst = reinterpret_cast<CUdeviceptr>(&on_host);
  CHECK(add_fill(graph, wrong) == CUDA_ERROR_INVALID_VALUE);
  CUcontext gone = nullptr;
  REQUIRE_OK(cuCtxCreate(&gone, nullptr, 0, 0));
  REQUIRE_OK(cuCtxDestroy(gone));
  device.make_current();
  CUgraphNode node = nullptr;
  CHECK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &right, gone) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(graph.nodes().empty());
}

TEST_CASE("memcpy nodes copy in up to three dimensions, and read pageable memory when they run") {
  const Device device;
  const Memory memory(256);
  std::array<int, 4> from{1, 2, 3, 4}, to{};
  const Graph graph;
  const CUgraphNode up = graph.copy({}, memory, reinterpret_cast<CUdeviceptr>(from.data()), sizeof from);
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = memory;
  back.srcPitch = 2 * sizeof(int);
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = to.data();
  back.dstPitch = 2 * sizeof(int);
  back.WidthInBytes = sizeof(int);
  back.Height = 2;
  back.Depth = 1;
  CUgraphNode down = nullptr;
  REQUIRE_OK(cuGraphAddMemcpyNode(&down, graph, &up, 1, &back, device.context()));
  const Executable executable(graph);
  from = {5, 6, 7, 8};
  const Stream stream;
  executable.run(stream);
  CHECK(to == std::array{5, 0, 7, 0});
  CUDA_MEMCPY3D found{};
  CHECK_OK(cuGraphMemcpyNodeGetParams(down, &found));
  CHECK(found.dstHost == to.data());
  CHECK(found.Height == 2);
  CHECK_OK(cuGraphMemcpyNodeSetParams(up, &back));
  CHECK_OK(cuGraphMemcpyNodeGetParams(up, &found));
  CHECK(found.dstHost == to.data());
}

TEST_CASE("memcpy nodes that could not run are refused") {
  const Device device;
  const Memory memory(256), other(256);
  const Graph graph;
  CHECK(add_copy(graph, linear_copy(memory, other, 512)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add_copy(graph, linear_copy(memory, other, 0)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(add_copy(graph, linear_copy(memory, 0, 4)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(graph.nodes().empty());
}

TEST_CASE("host, event and batch nodes give back what they were made with") {
  const Device device;
  const Graph graph;
  const Event one, other;
  const SharedInts<2> memory;
  const CUhostFn function = [](void* flag) { *static_cast<int*>(flag) = 1; };
  const CUgraphNode host = graph.host({}, function, memory.data());
  CUDA_HOST_NODE_PARAMS found{};
  CHECK_OK(cuGraphHostNodeGetParams(host, &found));
  CHECK((found.fn == function));
  CHECK(found.userData == memory.data());
  found.userData = memory.data() + 1;
  CHECK_OK(cuGraphHostNodeSetParams(host, &found));
  found.fn = nullptr;
  CHECK(cuGraphHostNodeSetParams(host, &found) == CUDA_ERROR_INVALID_VALUE);
  const CUgraphNode record = graph.record({}, one), wait = graph.wait({}, one);
  CUevent event = nullptr;
  CHECK_OK(cuGraphEventRecordNodeGetEvent(record, &event));
  CHECK(event == one);
  CHECK_OK(cuGraphEventWaitNodeSetEvent(wait, other));
  CHECK_OK(cuGraphEventWaitNodeGetEvent(wait, &event));
  CHECK(event == other);
  CHECK_OK(cuGraphEventRecordNodeSetEvent(record, other));
  CHECK(cuGraphEventWaitNodeGetEvent(record, &event) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphEventRecordNodeSetEvent(wait, one) == CUDA_ERROR_INVALID_VALUE);
  std::array operations{write_of(memory.address(), 3), write_of(memory.address(1), 4)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{device.context(), 2, operations.data(), 0};
  CUgraphNode node = nullptr;
  REQUIRE_OK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch));
  CUDA_BATCH_MEM_OP_NODE_PARAMS kept{};
  CHECK_OK(cuGraphBatchMemOpNodeGetParams(node, &kept));
  CHECK(kept.count == 2);
  CHECK(kept.paramArray[1].writeValue.value == 4);
  operations[1].writeValue.value = 6;
  CHECK_OK(cuGraphBatchMemOpNodeSetParams(node, &batch));
  operations[1].writeValue.address += 1;
  CHECK(cuGraphBatchMemOpNodeSetParams(node, &batch) == CUDA_ERROR_INVALID_VALUE);
  batch.count = 257;
  CHECK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch) == CUDA_ERROR_INVALID_VALUE);
  batch.count = 0;
  CHECK_OK(cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &batch));
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(memory[0] == 3);
  CHECK((memory[1] == 6 || memory[1] == 1));  // the host function and the batch have no order
}

TEST_CASE("parameters are asked of the right type of node only") {
  const Device device;
  const Graph graph;
  const CUgraphNode node = graph.empty();
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUDA_HOST_NODE_PARAMS host{};
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  CUdeviceptr address = 0;
  CUgraph child = nullptr;
  CUevent event = nullptr;
  CHECK(cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphMemsetNodeGetParams(node, &fill) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphHostNodeGetParams(node, &host) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphMemAllocNodeGetParams(node, &allocation) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphMemFreeNodeGetParams(node, &address) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphBatchMemOpNodeGetParams(node, &batch) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphEventRecordNodeGetEvent(node, &event) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGraphEventWaitNodeGetEvent(node, &event) == CUDA_ERROR_INVALID_VALUE);
  CUgraphNodeType type{};
  CHECK_OK(cuGraphNodeGetType(node, &type));
  CHECK(type == CU_GRAPH_NODE_TYPE_EMPTY);
}

TEST_CASE("one function adds and sets nodes of any type") {
  const Device device;
  const Module module;
  const Memory memory(64);
  const SharedInts<4> out;
  const Event event;
  const Graph graph, inner;
  inner.fill({}, memory, 5, 4);
  Nodes added;
  const auto add = [&](CUgraphNodeParams& parameters) {
    CUgraphNode node = nullptr;
    const CUresult result = cuGraphAddNode_v2(&node, graph, added.empty() ? nullptr : &added.back(), nullptr,
                                              added.empty() ? 0 : 1, &parameters);
    if (result == CUDA_SUCCESS) added.push_back(node);
    return result;
  };
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = inner;
  CHECK_OK(add(parameters));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_KERNEL;
  KernelNode described(module.function("add"), 4, static_cast<CUdeviceptr>(memory), 2);
  std::memcpy(&parameters.kernel, &described.parameters, sizeof described.parameters);
  CHECK_OK(add(parameters));
  const CUgraphNode kernel = added.back();
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  parameters.memcpy.copyCtx = device.context();
  parameters.memcpy.copyParams = linear_copy(out.address(), memory, 4 * sizeof(int));
  CHECK_OK(add(parameters));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
  parameters.memset = {memory, 0, 0, 4, 4, 1, device.context()};
  CHECK_OK(add(parameters));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  parameters.eventRecord.event = event;
  CHECK_OK(add(parameters));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  parameters.eventWait.event = event;
  CHECK_OK(add(parameters));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK_OK(add(parameters));
  parameters.reserved2 = 1;
  CHECK(add(parameters) == CUDA_ERROR_INVALID_VALUE);
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  parameters.eventRecord.event = event;
  parameters.asBytes[100] = 1;
  CHECK(add(parameters) == CUDA_ERROR_INVALID_VALUE);
  parameters = {};
  parameters.type = static_cast<CUgraphNodeType>(15);  // none has this number
  CHECK(add(parameters) == CUDA_ERROR_INVALID_VALUE);
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_KERNEL;
  KernelNode changed(module.function("add"), 4, static_cast<CUdeviceptr>(memory), 3);
  std::memcpy(&parameters.kernel, &changed.parameters, sizeof changed.parameters);
  CHECK_OK(cuGraphNodeSetParams(kernel, &parameters));
  CHECK(cuGraphNodeSetParams(added.back(), &parameters) == CUDA_ERROR_INVALID_VALUE);
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(out[0] == 8);
  CHECK(out[3] == 8);
  CHECK_OK(cuEventQuery(event));
}

TEST_CASE("a child graph of a node can be replaced by another") {
  const Device device;
  const Memory memory(64);
  const Graph graph, five, six;
  five.fill({}, memory, 5, 4);
  six.fill({}, memory, 6, 4);
  const CUgraphNode node = graph.child({}, five);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = six;
  CHECK_OK(cuGraphNodeSetParams(node, &parameters));
  const Stream stream;
  Executable(graph).run(stream);
  CHECK(read_ints(memory, 1) == std::vector{6});
}
