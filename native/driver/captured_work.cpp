// Captures, and what of them may be in a body: see captured_work.hpp.
#include "captured_work.hpp"

#include <string>

#include "calls.hpp"
#include "foreign_call.hpp"
#include "graph_handles.hpp"

namespace aiocuda::driver {
namespace {

const char* name_of_capture_error(CUresult result) {
  switch (result) {
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
      return "CUDA_ERROR_STREAM_CAPTURE_MERGE";
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
      return "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED";
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
      return "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
      return "CUDA_ERROR_STREAM_CAPTURE_ISOLATION";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    default:
      return nullptr;
  }
}

// Memory of the host that CUDA does not know.
bool is_pageable(const Engine& engine, CUmemorytype kind, const void* host, CUdeviceptr device) {
  if (kind == CU_MEMORYTYPE_DEVICE || kind == CU_MEMORYTYPE_ARRAY) return false;
  const CUdeviceptr address = kind == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  CUmemorytype found{};
  const CUresult result = engine.table.cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == CUDA_ERROR_INVALID_VALUE) return true;
  check(result, "cuPointerGetAttribute");
  return false;
}

}  // namespace

std::shared_ptr<void> capture(Engine& engine, dataflow::ForeignOp& op, const std::vector<nb::handle>& values,
                              std::int32_t device, CUstreamCaptureMode mode, nb::object& kept, nb::object& returned) {
  ContextScope scope(engine);
  const StreamIndex stream = engine.streams.create(device, 0);
  struct Closing {
    Engine& engine;
    StreamIndex stream;
    ~Closing() { engine.streams.close(stream); }
  } closing{engine, stream};
  scope.bind(device);
  const nb::object function = op.function;
  const nb::object arguments = arguments_of(engine, op, values, stream, device);
  engine.now.drain();
  check(engine.table.cuStreamBeginCapture(engine.stream(stream).handle, mode), "cuStreamBeginCapture");
  PyObject* result = nullptr;
  {
    const ProgramsCaptures programs(engine.table);
    const InCall in_call(stream, device, nullptr);
    result = PyObject_Call(function.ptr(), arguments.ptr(), nullptr);
  }
  scope.bind(device);  // it may have left another context
  CUgraph captured = nullptr;
  const CUresult ended = engine.table.cuStreamEndCapture(engine.stream(stream).handle, &captured);
  GraphHandle graph(captured, {&engine.devices});
  if (!result) {
    nb::python_error error;
    if (op.state.is_valid()) note_place(error, op);
    throw error;
  }
  returned = nb::steal(result);
  if (const char* name = name_of_capture_error(ended))
    dataflow::raise(
        dataflow::error_types.capture,
        nb::cast<std::string>(object_of(op).attr("_title")) + " could not be captured (" + name +
            "): its function waits for a stream, "
            "leaves another stream unjoined, or does something else that the driver refuses meanwhile; leave that out, "
            "or try capture_mode=\"relaxed\"");
  check(ended, "cuStreamEndCapture");
  kept = nb::make_tuple(function, arguments, returned);
  std::size_t nodes = 0;
  check(engine.table.cuGraphGetNodes(graph.get(), nullptr, &nodes), "cuGraphGetNodes");
  if (nodes == 0) return nullptr;
  return std::shared_ptr<void>(graph.release(), graph.get_deleter());
}

const char* refused_in_body(const Engine& engine, CUgraph graph) {
  std::size_t count = 0;
  check(engine.table.cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> nodes(count);
  check(engine.table.cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    check(engine.table.cuGraphNodeGetType(node, &type), "cuGraphNodeGetType");
    switch (type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
      case CU_GRAPH_NODE_TYPE_MEMSET:
      case CU_GRAPH_NODE_TYPE_EMPTY:
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY: {
        CUDA_MEMCPY3D copy{};
        check(engine.table.cuGraphMemcpyNodeGetParams(node, &copy), "cuGraphMemcpyNodeGetParams");
        if (is_pageable(engine, copy.srcMemoryType, copy.srcHost, copy.srcDevice) ||
            is_pageable(engine, copy.dstMemoryType, copy.dstHost, copy.dstDevice))
          return "a copy from or to pageable memory";
        break;
      }
      case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUgraph child = nullptr;
        check(engine.table.cuGraphChildGraphNodeGetGraph(node, &child), "cuGraphChildGraphNodeGetGraph");
        if (const char* const refused = refused_in_body(engine, child)) return refused;
        break;
      }
      case CU_GRAPH_NODE_TYPE_HOST:
        return "a function of the host";
      case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return "an allocation";
      case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return "an event";
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return "a loop or a branch of its own";
      default:
        return "a wait or a write of a stream";
    }
  }
  return nullptr;
}

}  // namespace aiocuda::driver
