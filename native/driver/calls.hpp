// The driver's calls for a launch, with the kernel that it needs.
//
// Always true: the work's context is bound, and all that it touches is there.
#pragma once
#include <vector>

#include "../dataflow/launch.hpp"
#include "launch_limits.hpp"
#include "refused.hpp"

namespace aiocuda::driver {

inline bool is_loaded(const dataflow::LaunchOp& op, std::int32_t device) {
  const auto& known = op.signature.loaded;
  const auto slot = static_cast<std::size_t>(device);
  return known.size() > slot && known[slot].function;
}

// The same, where Python may have it there: nobody has launched it since.
inline bool is_there(const dataflow::LaunchOp& op, std::int32_t device) {
  return is_loaded(op, device) || nb::cast<bool>(op.kernel().attr("_is_loaded")(device));
}

// An image as Python holds it.
struct LoadedImage {
  dataflow::BufferRef buffer;
};

// A launch's kernel on a device, with the shared memory that it asks for. It has been compiled and loaded there. Its
// context is bound afterwards. A shape that the device does not allow is an error here.
inline CUfunction function_of(Engine& engine, ContextScope& scope, dataflow::LaunchOp& op, std::int32_t device) {
  scope.bind(device);
  const auto slot = static_cast<std::size_t>(device);
  auto& known = op.signature.loaded;
  if (!is_loaded(op, device)) {
    const nb::object made = op.kernel().attr("_load_with_limits")(device, object_of(op));
    if (known.size() <= slot) known.resize(slot + 1);
    known[slot] = nb::cast<const dataflow::Signature::Loaded&>(made);
    scope.bind(device);  // Python may have left another context
  }
  auto& loaded = known[slot];
  auto function = static_cast<CUfunction>(loaded.function);
  check_limits(op, loaded, device);
  if (op.shape.shared_bytes > loaded.shared_limit_bytes) {
    // Other kernel objects have the same function, and may have raised it further: nobody's launches may lower it
    // again. Each keeps its own count of what it asked for.
    int now = 0;
    CUresult result = engine.table.cuFuncGetAttribute(&now, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function);
    const auto wanted = static_cast<int>(op.shape.shared_bytes);
    if (!result && wanted > now)
      result = engine.table.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wanted);
    if (result) raise_refused(engine, result, "cuFuncSetAttribute", object_of(op), op.shape.shared_bytes, device);
    loaded.shared_limit_bytes = op.shape.shared_bytes;
  }
  if (op.shape.cooperative || op.shape.cluster.x) check_residency(engine.table, op, loaded, device);
  return function;
}

// A launch, of a kernel that is loaded on the device.
inline CUresult call_launch(const Table& table, dataflow::LaunchOp& op, std::int32_t device, CUstream stream) {
  const dataflow::LaunchShape& shape = op.shape;
  auto function = static_cast<CUfunction>(op.signature.loaded[static_cast<std::size_t>(device)].function);
  // The words stay when the arguments have been let go of.
  const auto count = static_cast<std::uint32_t>(op.signature.params.size());
  void* params[dataflow::inline_arguments];
  std::vector<void*> more;
  void** words = params;
  if (count > dataflow::inline_arguments) {
    more.resize(count);
    words = more.data();
  }
  for (std::uint32_t i = 0; i < count; ++i) words[i] = op.word_of(i);
  if (shape.cooperative || shape.cluster.x) {
    LaunchConfig asked(shape);
    asked.config.hStream = stream;
    return table.cuLaunchKernelEx(&asked.config, function, words, nullptr);
  }
  return table.cuLaunchKernel(function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                              shape.block.z, shape.shared_bytes, stream, words, nullptr);
}

}  // namespace aiocuda::driver
