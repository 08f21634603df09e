// The parameters of a graph's nodes: a class for each type of node. Always: parameters never change once they are made.
// So a graph, its clones and the executables made from it share them, and to set a node's parameters is to put others
// in their place.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api.hpp"
#include "event.hpp"
#include "launch_work.hpp"
#include "memory/fill.hpp"

namespace aiocuda::emulator::graph {

class Graph;
class GraphAllocation;

// A line of a picture of a node: what it tells, and its value.
struct Detail {
  std::string name;
  std::string value;
};
using Details = std::vector<Detail>;

using Works = std::vector<std::shared_ptr<Work>>;

class NodeParameters {
 public:
  virtual ~NodeParameters() = default;
  virtual CUgraphNodeType type() const noexcept = 0;
  // The context that the node runs in; null where it needs none.
  virtual std::shared_ptr<Context> context() const { return nullptr; }
  // Is what it needs still there? Asked when an executable is made.
  virtual CUresult check() const { return CUDA_SUCCESS; }
  // The work that an executable runs for the node in each replay, one piece after the other. There is none if the node
  // only orders others, and for nodes that the replay itself performs: events, child graphs, conditions.
  virtual void append_work(Works&) const {}
  // May `next`, of the same type, take the place of these in an executable?
  virtual CUgraphExecUpdateResult check_update(const NodeParameters& next) const = 0;
  // For cuGraphDebugDotPrint: what stands in the node, and what the flags ask for beside that.
  virtual std::string title() const = 0;
  virtual void describe(unsigned, Details&) const {}
};
using ParametersPointer = std::shared_ptr<const NodeParameters>;

class EmptyParameters final : public NodeParameters {
 public:
  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUgraphExecUpdateResult check_update(const NodeParameters&) const override { return CU_GRAPH_EXEC_UPDATE_SUCCESS; }
  std::string title() const override { return "EMPTY"; }
};

// The attributes of a kernel node, beside its shape. All but the first three are kept and given back, and have no
// effect.
struct KernelAttributes {
  int priority = 0;
  bool cooperative = false;
  CUlaunchAttributeValue cluster{};  // all 0: none was asked for
  CUlaunchAttributeValue access_policy_window{};
  CUlaunchAttributeValue cluster_scheduling{};
  CUlaunchAttributeValue memory_sync_domain_map{};
  CUlaunchAttributeValue memory_sync_domain{};
  CUlaunchAttributeValue shared_carveout{};
  KernelAttributes();
  CUresult set(CUlaunchAttributeID attribute, const CUlaunchAttributeValue& value);
  CUresult get(CUlaunchAttributeID attribute, CUlaunchAttributeValue& value) const;
};

class KernelParameters final : public NodeParameters {
 public:
  // As a launch is described: `shape.cooperative` and `shape.cluster` say the same as the attributes afterwards. The
  // arguments are copied.
  static CUresult make(std::shared_ptr<Function> function, LaunchShape shape, const KernelAttributes& attributes,
                       void** parameters, void** extra, std::shared_ptr<const KernelParameters>& made);
  // As the API of graphs describes it.
  static CUresult make(const CUDA_KERNEL_NODE_PARAMS& given, const KernelAttributes& attributes,
                       std::shared_ptr<const KernelParameters>& made);
  // The same with other attributes.
  CUresult with(const KernelAttributes& attributes, std::shared_ptr<const KernelParameters>& made) const;

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  std::shared_ptr<Context> context() const override { return function_->context().shared_from_this(); }
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override;
  void describe(unsigned flags, Details& details) const override;

  const KernelAttributes& attributes() const noexcept { return attributes_; }
  // The memory behind the pointers in the answer lives as long as these parameters.
  CUDA_KERNEL_NODE_PARAMS given() const;

 private:
  KernelParameters(std::shared_ptr<Function> function, const LaunchShape& shape, const KernelAttributes& attributes);

  const std::shared_ptr<Function> function_;
  const LaunchShape shape_;
  const KernelAttributes attributes_;
  Arguments arguments_;
  bool was_given_extra_ = false;
  std::size_t argument_bytes_ = 0;
  std::array<void*, 5> extra_{};
};

class CopyParameters final : public NodeParameters {
 public:
  static CUresult make(const CUDA_MEMCPY3D& copy, std::shared_ptr<Context> context, ParametersPointer& made);
  // Of a copy whose sides have been resolved; `copy` describes the same.
  CopyParameters(std::shared_ptr<Context> context, const CUDA_MEMCPY3D& copy, const memory::Operand& destination,
                 const memory::Operand& source, const memory::Extent& extent)
      : context_(std::move(context)), copy_(copy), destination_(destination), source_(source), extent_(extent) {}

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  std::shared_ptr<Context> context() const override { return context_; }
  CUresult check() const override;
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override;
  void describe(unsigned flags, Details& details) const override;
  const CUDA_MEMCPY3D& given() const noexcept { return copy_; }
  bool is_within_host() const noexcept {
    return destination_.memory != memory::Memory::device && source_.memory != memory::Memory::device;
  }
  // Is it a copy that a graph launched by the device may make: not of pageable memory or arrays?
  bool fits_device() const noexcept {
    const auto fits = [](const memory::Operand& side) {
      return side.memory != memory::Memory::pageable && side.array == nullptr;
    };
    return fits(destination_) && fits(source_);
  }

 private:
  // Only copies of one row can be changed in an executable, and into others of one row. Memory of cuMemAlloc does not
  // take the place of a pool's (seen with driver 580 on an H200).
  bool is_linear() const noexcept { return extent_.height == 1 && extent_.depth == 1; }

  const std::shared_ptr<Context> context_;
  const CUDA_MEMCPY3D copy_;
  const memory::Operand destination_, source_;
  const memory::Extent extent_;
};

class FillParameters final : public NodeParameters {
 public:
  static CUresult make(const CUDA_MEMSET_NODE_PARAMS& fill, std::shared_ptr<Context> context, ParametersPointer& made);

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  std::shared_ptr<Context> context() const override { return context_; }
  CUresult check() const override;
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override;
  void describe(unsigned flags, Details& details) const override;
  const CUDA_MEMSET_NODE_PARAMS& given() const noexcept { return fill_; }

 private:
  FillParameters(std::shared_ptr<Context> context, const CUDA_MEMSET_NODE_PARAMS& fill,
                 const memory::Operand& destination, const memory::Extent& extent)
      : context_(std::move(context)), fill_(fill), destination_(destination), extent_(extent) {}

  const std::shared_ptr<Context> context_;
  const CUDA_MEMSET_NODE_PARAMS fill_;
  const memory::Operand destination_;
  const memory::Extent extent_;
};

// Work of a library beside the driver is one, too (stream_work.cpp).
class HostParameters : public NodeParameters {
 public:
  // The function is not null. How its thread waits, and the context that is preferred for it, are kept and given back.
  explicit HostParameters(const CUDA_HOST_NODE_PARAMS& given, unsigned sync_mode = 0, CUcontext preferred = nullptr)
      : given_(given), sync_mode_(sync_mode), preferred_(preferred) {}

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_HOST; }
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters&) const override { return CU_GRAPH_EXEC_UPDATE_SUCCESS; }
  std::string title() const override { return "HOST"; }
  void describe(unsigned flags, Details& details) const override;
  const CUDA_HOST_NODE_PARAMS& given() const noexcept { return given_; }
  unsigned sync_mode() const noexcept { return sync_mode_; }
  CUcontext preferred_context() const noexcept { return preferred_; }

 private:
  const CUDA_HOST_NODE_PARAMS given_;
  const unsigned sync_mode_;
  const CUcontext preferred_;
};

// Of both types of event nodes: they record, and wait for, what is there when the graph is launched.
class EventParameters final : public NodeParameters {
 public:
  EventParameters(CUgraphNodeType type, std::shared_ptr<Event> event) : type_(type), event_(std::move(event)) {}

  CUgraphNodeType type() const noexcept override { return type_; }
  std::shared_ptr<Context> context() const override { return event_->context().shared_from_this(); }
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override {
    return type_ == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? "EVENT_RECORD" : "EVENT_WAIT";
  }
  void describe(unsigned flags, Details& details) const override;
  const std::shared_ptr<Event>& event() const noexcept { return event_; }

 private:
  const CUgraphNodeType type_;
  const std::shared_ptr<Event> event_;
};

class BatchParameters final : public NodeParameters {
 public:
  static CUresult make(const CUDA_BATCH_MEM_OP_NODE_PARAMS& given, std::shared_ptr<const BatchParameters>& made);

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  std::shared_ptr<Context> context() const override { return context_; }
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override { return "BATCH_MEM_OP"; }
  void describe(unsigned flags, Details& details) const override;
  CUDA_BATCH_MEM_OP_NODE_PARAMS given() const;
  bool waits() const noexcept;  // for a value that others write

 private:
  BatchParameters(std::shared_ptr<Context> context, std::vector<CUstreamBatchMemOpParams> operations)
      : context_(std::move(context)), operations_(std::move(operations)) {}

  const std::shared_ptr<Context> context_;
  const std::vector<CUstreamBatchMemOpParams> operations_;
};

// Both types of memory nodes name an allocation of graph_memory.hpp.
class AllocateParameters final : public NodeParameters {
 public:
  // OUT_OF_MEMORY where there are no addresses left; the memory itself is had when the graph is launched.
  static CUresult make(const CUDA_MEM_ALLOC_NODE_PARAMS& given, std::shared_ptr<const AllocateParameters>& made);

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override { return "MEM_ALLOC"; }
  void describe(unsigned flags, Details& details) const override;
  const std::shared_ptr<GraphAllocation>& allocation() const noexcept { return allocation_; }
  CUDA_MEM_ALLOC_NODE_PARAMS given() const;

 private:
  AllocateParameters(const CUDA_MEM_ALLOC_NODE_PARAMS& given, std::vector<CUmemAccessDesc> access,
                     std::shared_ptr<GraphAllocation> allocation);

  CUDA_MEM_ALLOC_NODE_PARAMS given_;
  const std::vector<CUmemAccessDesc> access_;
  const std::shared_ptr<GraphAllocation> allocation_;
};

class FreeParameters final : public NodeParameters {
 public:
  // INVALID_VALUE where no allocation node has this address.
  static CUresult make(CUdeviceptr address, ParametersPointer& made);

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  void append_work(Works& works) const override;
  CUgraphExecUpdateResult check_update(const NodeParameters& next) const override;
  std::string title() const override { return "MEM_FREE"; }
  void describe(unsigned flags, Details& details) const override;
  const std::shared_ptr<GraphAllocation>& allocation() const noexcept { return allocation_; }
  CUdeviceptr address() const noexcept;

 private:
  explicit FreeParameters(std::shared_ptr<GraphAllocation> allocation) : allocation_(std::move(allocation)) {}

  const std::shared_ptr<GraphAllocation> allocation_;
};

// The graph itself may still be changed through its own handle; the node owns it.
class ChildParameters final : public NodeParameters {
 public:
  ChildParameters(std::shared_ptr<Graph> graph, bool was_moved) : graph_(std::move(graph)), was_moved_(was_moved) {}

  CUgraphNodeType type() const noexcept override { return CU_GRAPH_NODE_TYPE_GRAPH; }
  CUgraphExecUpdateResult check_update(const NodeParameters&) const override { return CU_GRAPH_EXEC_UPDATE_SUCCESS; }
  std::string title() const override { return "GRAPH"; }
  void describe(unsigned flags, Details& details) const override;
  const std::shared_ptr<Graph>& graph() const noexcept { return graph_; }
  bool was_moved() const noexcept { return was_moved_; }  // and not cloned

 private:
  const std::shared_ptr<Graph> graph_;
  const bool was_moved_;
};

// The context that a handle means to a call of the graph API: the current one where it is null.
CUresult resolve_context(CUcontext handle, std::shared_ptr<Context>& context);

}  // namespace aiocuda::emulator::graph
