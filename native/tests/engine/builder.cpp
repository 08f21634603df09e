// Operations for tests: see builder.hpp.
#include "builder.hpp"

#include <nanobind/stl/string.h>

#include "dataflow/asked.hpp"
#include "dataflow/pageable.hpp"
#include "dataflow/policies.hpp"
#include "driver/graph.hpp"
#include "driver/host_work.hpp"
#include "driver/outstanding.hpp"

namespace aiocuda::driver::tests {
namespace {

dataflow::Pattern pattern_of(std::uint32_t size) {
  dataflow::Pattern pattern;
  pattern.size = static_cast<std::uint8_t>(size);
  for (std::uint32_t i = 0; i < size; ++i) pattern.bytes[i] = static_cast<unsigned char>(i + 1);
  return pattern;
}

}  // namespace

void bind_nouns(nb::module_& module) {
  auto op = nb::class_<Op>(module, "Op").def_prop_ro("_title", [](Op&) { return "an operation"; });
  dataflow::is_op.set(reinterpret_cast<PyTypeObject*>(op.ptr()));
  nb::class_<dataflow::LaunchOp, Op>(module, "LaunchOp");
  nb::class_<dataflow::CreateOp, Op>(module, "CreateOp");
  nb::class_<dataflow::FillOp, Op>(module, "FillOp");
  nb::class_<dataflow::CopyOp, Op>(module, "CopyOp");
  nb::class_<dataflow::CallOp, Op>(module, "CallOp");
  nb::class_<dataflow::GatherOp, Op>(module, "GatherOp");
  nb::class_<dataflow::PickOp, Op>(module, "PickOp");
  nb::class_<dataflow::ReplayOp, Op>(module, "ReplayOp");
  auto array = nb::class_<Array>(module, "Array");
  dataflow::is_array.set(reinterpret_cast<PyTypeObject*>(array.ptr()));
  auto pageable = nb::class_<dataflow::Pageable>(module, "Pageable");
  dataflow::is_pageable.set(reinterpret_cast<PyTypeObject*>(pageable.ptr()));
  nb::class_<dataflow::Policy>(module, "Policy");
  nb::class_<dataflow::Dataflow, dataflow::Policy>(module, "Dataflow");
  nb::class_<dataflow::SingleStream, dataflow::Policy>(module, "SingleStream");
  nb::class_<Placement>(module, "Placement");
  nb::class_<HostWork>(module, "HostWork");
  nb::class_<AheadMemory>(module, "AheadMemory");
  nb::class_<GraphObject>(module, "Graph");
  nb::handle variable = nb::module_::import_("contextvars").attr("ContextVar")("placement").release();
  dataflow::placement_variable() = variable;
  dataflow::dtypes.add("uint8", 1);
  dataflow::dtypes.add("complex128", 16);
  dataflow::error_types.capture = dataflow::error_types.argument_value = PyExc_ValueError;
  dataflow::error_types.closed = dataflow::error_types.device_mismatch = PyExc_ValueError;
}

nb::object Builder::create(std::uint64_t size_bytes, std::int32_t device, std::uint32_t pattern_bytes,
                           dataflow::DType dtype) {
  nb::object object = make<dataflow::CreateOp>();
  auto& op = of<dataflow::CreateOp>(object);
  op.shape = {static_cast<std::int64_t>(size_bytes / dataflow::dtypes[dtype].size_bytes)};
  op.size_bytes = size_bytes;
  op.spec = {device == dataflow::host_ordinal ? dataflow::Yields::host_array : dataflow::Yields::device_array, dtype,
             device};
  op.pattern = pattern_of(pattern_bytes);
  return object;
}
nb::object Builder::create_host(std::uint64_t size_bytes) { return create(size_bytes, dataflow::host_ordinal); }

nb::object Builder::fill(const nb::object& destination, std::uint32_t pattern_bytes) {
  nb::object object = make<dataflow::FillOp>();
  of<dataflow::FillOp>(object).destination = destination;
  of<dataflow::FillOp>(object).pattern = pattern_of(pattern_bytes);
  return object;
}

nb::object Builder::copy(const nb::object& destination, const nb::object& source) {
  nb::object object = make<dataflow::CopyOp>();
  of<dataflow::CopyOp>(object).destination = destination;
  of<dataflow::CopyOp>(object).source = source;
  return object;
}

nb::object Builder::gather(const std::vector<nb::object>& items) {
  nb::object object = make<dataflow::GatherOp>();
  of<dataflow::GatherOp>(object).items = items;
  return object;
}

nb::object Builder::pick(const nb::object& source, std::int64_t index) {
  nb::object object = make<dataflow::PickOp>();
  of<dataflow::PickOp>(object).source = source;
  of<dataflow::PickOp>(object).index = index;
  return object;
}

namespace {
nb::object call(dataflow::CallMode mode, const nb::object& input, nb::object function) {
  nb::object object = make<dataflow::CallOp>();
  auto& op = of<dataflow::CallOp>(object);
  op.mode = mode;
  op.input = input;
  op.function = std::move(function);
  return object;
}
}  // namespace
nb::object Builder::map(const nb::object& input, nb::object function) {
  return call(dataflow::CallMode::map, input, std::move(function));
}
nb::object Builder::then(const nb::object& input, nb::object function) {
  return call(dataflow::CallMode::then, input, std::move(function));
}

std::shared_ptr<dataflow::Signature> Builder::signature(std::size_t reads, std::size_t writes, bool is_loaded) {
  auto made = std::make_shared<dataflow::Signature>();
  made->kernel = "kernel";
  made->memory = std::make_shared<dataflow::ModuleMemory>();
  for (std::size_t i = 0; i < reads + writes; ++i) {
    made->params.push_back({dataflow::ParamKind::array, 1, i >= reads, "p" + std::to_string(i)});
    if (i >= reads) made->outputs.push_back(static_cast<std::uint32_t>(i));
  }
  if (is_loaded) load(*made);
  signatures_.push_back(made);
  return made;
}

nb::object Builder::launch(const std::vector<nb::object>& reads, const std::vector<nb::object>& writes) {
  std::vector<nb::object> arguments = reads;
  arguments.insert(arguments.end(), writes.begin(), writes.end());
  return launch_of(kernel_, *signature(reads.size(), writes.size()), arguments);
}

nb::object Builder::launch_of(nb::object kernel, dataflow::Signature& of_kernel,
                              const std::vector<nb::object>& arguments) {
  nb::object object = make<dataflow::LaunchOp>(kernel, of_kernel);
  auto& op = of<dataflow::LaunchOp>(object);
  dataflow::Home home;
  for (const nb::object& each : arguments) op.bind(each, home);
  op.tied_device = home.device;
  op.spec = {dataflow::Yields::device_array, 1, home.device};
  return object;
}

}  // namespace aiocuda::driver::tests
