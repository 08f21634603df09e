#include "graph.hpp"

#include <algorithm>
#include <utility>

#include "../dataflow/plan_difference.hpp"
#include "calls.hpp"

namespace aiocuda::driver {
using dataflow::GraphNode;
using dataflow::NodeIndex;
using dataflow::NodeKind;

// The structs point into `words`, which point into `values`.
struct Graph::Parameters {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUDA_MEMCPY3D copy{};
  CUcontext context = nullptr;
  std::vector<void*> words;
  std::vector<std::uint64_t> values;
};

namespace {

// Others submit, and have the GIL, when a thread that makes a graph has added so many: after a few hundred
// microseconds.
constexpr std::size_t nodes_at_once = 128;

// In an executable the driver changes the memory of one-dimensional copies and fills alone
// (cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams).
bool can_be_set(const GraphNode& node) {
  if (const auto* const copy = node.as<dataflow::CopyNode>()) return copy->rows == 1;
  const auto* const fill = node.as<dataflow::FillNode>();
  return !fill || fill->rows == 1;
}

// A driver that cannot change a node inside of a conditional one says so; another executable is made then.
bool is_refused_in_body(const GraphNode& node, CUresult result) {
  return node.inside != dataflow::no_node && (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED);
}

const dataflow::BufferRef& image_of(const GraphNode& node) {
  return node.launch().signature.loaded[static_cast<std::size_t>(node.device)].image;
}

// An executable that was replaced, until its last launch has passed.
struct Retired {
  std::vector<dataflow::BufferRef> images;  // outlive it
  ExecutableHandle executable;
  Retired(std::vector<dataflow::BufferRef> held, ExecutableHandle replaced)
      : images(std::move(held)), executable(std::move(replaced)) {}
};

}  // namespace

Graph::Graph(Engine& engine, dataflow::GraphPlan made)
    : plan(std::move(made)), engine_(engine), is_dirty_(plan.nodes.size(), false) {
  reset_words();
}

void Graph::make() {
  {
    const Engine::Submission submission(engine_);
    if (is_made() || is_being_made_ || plan.is_closed) return;
    is_being_made_ = true;  // whoever closes it meanwhile leaves the rest to this
  }
  try {
    {
      const Engine::Submission submission(engine_);
      engine_.graph_room.prepare(dataflow::branches_by_device(plan));
      renew_addresses();
      begin();
    }
    while (nodes_.size() < plan.nodes.size()) {
      {
        const Engine::Submission submission(engine_);
        add_nodes(nodes_at_once);
      }
      const nb::gil_scoped_release others_go_on;
    }
  } catch (...) {
    is_being_made_ = false;
    if (plan.is_closed) drop();
    throw;
  }
  use(Making::gives_up_gil);
}

Graph::~Graph() { retire(); }

// The words as the graph was made with.
void Graph::reset_words() {
  addresses_.clear();
  numbers_.clear();
  for (std::size_t slot = 0; slot < plan.memory.size(); ++slot)
    addresses_.push_back(as_made(static_cast<std::uint32_t>(slot), false));
  for (std::size_t slot = 0; slot < plan.numbers.size(); ++slot)
    numbers_.push_back(as_made(static_cast<std::uint32_t>(slot), true));
  strayed_addresses_.clear();
  strayed_numbers_.clear();
}

// Arrays of another graph that was still being recorded may have got their addresses since this one was.
void Graph::renew_addresses() {
  for (std::uint32_t slot = 0; slot < addresses_.size(); ++slot)
    if (std::find(strayed_addresses_.begin(), strayed_addresses_.end(), slot) == strayed_addresses_.end())
      addresses_[slot] = as_made(slot, false);
}

std::uint64_t Graph::as_made(std::uint32_t slot, bool is_number) const {
  return is_number ? plan.numbers[slot].word : plan.memory[slot].address();
}

void Graph::fill_in(const GraphNode& node, Parameters& into) {
  into.context = engine_.devices.at(node.device).context;
  if (const auto* const kernel = node.as<dataflow::KernelNode>()) {
    const dataflow::LaunchOp& launch = node.launch();
    into.values.assign(kernel->words.begin(), kernel->words.end());
    for (const auto& address : kernel->addresses) into.values[address.word] = address_of(kernel->pointer(address));
    for (const auto& number : kernel->numbers) into.values[number.word] = numbers_[number.slot];
    if (kernel->sets != dataflow::no_condition) into.values.front() = conditions_[kernel->sets];
    into.words.clear();
    std::uint64_t* next = into.values.data();
    for (std::uint32_t i = 0; i < kernel->parameters; ++i) {
      into.words.push_back(next);
      next += dataflow::words_of(launch.signature.params[i]);
    }
    const dataflow::LaunchShape& shape = launch.shape;
    hold_image(image_of(node));
    into.kernel.func = static_cast<CUfunction>(launch.signature.loaded[static_cast<std::size_t>(node.device)].function);
    into.kernel.gridDimX = shape.grid.x, into.kernel.gridDimY = shape.grid.y, into.kernel.gridDimZ = shape.grid.z;
    into.kernel.blockDimX = shape.block.x, into.kernel.blockDimY = shape.block.y, into.kernel.blockDimZ = shape.block.z;
    into.kernel.sharedMemBytes = shape.shared_bytes;
    into.kernel.kernelParams = into.words.data();
  } else if (const auto* const fill = node.as<dataflow::FillNode>()) {
    into.fill.dst = address_of(fill->to);
    into.fill.value = fill->value;
    into.fill.elementSize = fill->item_bytes;
    into.fill.width = fill->width;
    into.fill.height = fill->rows;
    into.fill.pitch = fill->pitch;
  } else if (const auto* const copy = node.as<dataflow::CopyNode>()) {
    into.copy.srcMemoryType = into.copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    into.copy.srcDevice = address_of(copy->from());
    into.copy.dstDevice = address_of(copy->to());
    into.copy.WidthInBytes = copy->width;
    into.copy.Height = copy->rows;
    into.copy.Depth = 1;
    into.copy.srcPitch = copy->rows > 1 ? copy->from_pitch : copy->width;
    into.copy.dstPitch = copy->rows > 1 ? copy->to_pitch : copy->width;
    into.copy.srcHeight = into.copy.dstHeight = copy->rows;
  }
}

void Graph::add_node(NodeIndex index) {
  const GraphNode& node = plan.nodes[index];
  const Table& table = engine_.table;
  ContextScope scope(engine_);
  std::vector<CUgraphNode> after;
  for (const NodeIndex other : node.after) {
    const std::optional<NodeIndex> edge = dataflow::edge_to(plan, node, other);
    if (edge && std::find(after.begin(), after.end(), nodes_[*edge]) == after.end()) after.push_back(nodes_[*edge]);
  }
  if (node.kind() == NodeKind::kernel) function_of(engine_, scope, node.launch(), node.device);
  scope.bind(node.device);
  Parameters parameters;
  fill_in(node, parameters);
  CUgraphNode made = nullptr;
  const CUgraph graph = graph_of(node);
  const std::size_t n = after.size();
  switch (node.kind()) {
    case NodeKind::kernel: {
      check(table.cuGraphAddKernelNode(&made, graph, after.data(), n, &parameters.kernel), "cuGraphAddKernelNode");
      const dataflow::LaunchShape& shape = node.launch().shape;
      CUkernelNodeAttrValue value{};
      if (shape.cooperative) {
        value.cooperative = 1;
        check(table.cuGraphKernelNodeSetAttribute(made, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
              "cuGraphKernelNodeSetAttribute");
      }
      if (shape.cluster.x) {
        value = {};
        value.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
        check(table.cuGraphKernelNodeSetAttribute(made, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
              "cuGraphKernelNodeSetAttribute");
      }
      break;
    }
    case NodeKind::fill:
      check(table.cuGraphAddMemsetNode(&made, graph, after.data(), n, &parameters.fill, parameters.context),
            "cuGraphAddMemsetNode");
      break;
    case NodeKind::copy:
      check(table.cuGraphAddMemcpyNode(&made, graph, after.data(), n, &parameters.copy, parameters.context),
            "cuGraphAddMemcpyNode");
      break;
    case NodeKind::captured:
      if (const auto& captured = node.as<dataflow::CapturedNode>()->graph) {
        check(table.cuGraphAddChildGraphNode(&made, graph, after.data(), n, static_cast<CUgraph>(captured.get())),
              "cuGraphAddChildGraphNode");
        break;
      }
      [[fallthrough]];
    case NodeKind::join:
      check(table.cuGraphAddEmptyNode(&made, graph, after.data(), n), "cuGraphAddEmptyNode");
      break;
    case NodeKind::conditional:
      add_conditional(index, after, made);
      break;
  }
  nodes_.push_back(made);
  is_settable_.push_back(can_be_set(node));
}

CUgraph Graph::graph_of(const GraphNode& node) const {
  return node.inside == dataflow::no_node ? graph_.get() : bodies_.at(node.inside)[node.body];
}

// The driver has the values beside the graph: its kernels know them by handles. A value is 0 until a kernel sets it.
void Graph::make_conditions() {
  conditions_.assign(plan.conditions, 0);
  for (const GraphNode& node : plan.nodes)
    if (const auto* const conditional = node.as<dataflow::ConditionalNode>())
      check(engine_.table.cuGraphConditionalHandleCreate(&conditions_[conditional->condition], graph_.get(),
                                                         engine_.devices.at(node.device).context, 0,
                                                         CU_GRAPH_COND_ASSIGN_DEFAULT),
            "cuGraphConditionalHandleCreate");
}

void Graph::add_conditional(NodeIndex index, const std::vector<CUgraphNode>& after, CUgraphNode& made) {
  const GraphNode& node = plan.nodes[index];
  const dataflow::ConditionalNode& conditional = *node.as<dataflow::ConditionalNode>();
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  parameters.conditional.handle = conditions_[conditional.condition];
  parameters.conditional.type = conditional.repeats ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF;
  parameters.conditional.size = conditional.bodies;
  parameters.conditional.ctx = engine_.devices.at(node.device).context;
  check(engine_.table.cuGraphAddNode(&made, graph_of(node), after.data(), nullptr, after.size(), &parameters),
        "cuGraphAddNode");
  std::array<CUgraph, 2>& bodies = bodies_[index];
  std::copy_n(parameters.conditional.phGraph_out, conditional.bodies, bodies.begin());
}

void Graph::instantiate(Making making) {
  const std::vector<std::uint64_t> places = dataflow::branches_by_device(plan);
  ContextScope scope(engine_);
  scope.bind(plan.device);
  CUgraphExec made = nullptr;
  auto instantiate = [&] { return engine_.table.cuGraphInstantiateWithFlags(&made, graph_.get(), 0); };
  is_being_made_ = true;
  const CUresult result = making == Making::gives_up_gil ? without_gil(instantiate) : instantiate();
  is_being_made_ = false;
  check(result, "cuGraphInstantiateWithFlags");
  ExecutableHandle executable(made, {&engine_.devices, places});
  engine_.graph_room.take(places);
  if (plan.is_closed) {
    executable.reset();
    const std::string place = plan.place;
    drop();
    dataflow::raise(dataflow::error_types.closed,
                    "the graph made at " + place + " was closed by another thread while it was being made");
  }
  retire();
  executable_ = std::move(executable);
  ++instantiations_;
}

// A kernel's function may be another one later, in another image (see Kernel.set_attributes).
void Graph::hold_image(const dataflow::BufferRef& image) {
  const bool is_held =
      std::any_of(images_.begin(), images_.end(), [&](const auto& held) { return held.get() == image.get(); });
  if (is_held) return;
  image->hazards.commit({0, image->size_bytes}, false, last_);  // which may be about to be made
  images_.push_back(image);
}

// Drops images from which neither the graph, as it was made, nor the executable has a kernel any more.
void Graph::hold_images_of_plan() {
  const std::vector<dataflow::BufferRef> before = std::exchange(images_, {});
  for (const dataflow::BufferRef& image : graph_images_) hold_image(image);
  for (const GraphNode& node : plan.nodes)
    if (node.kind() == NodeKind::kernel) hold_image(image_of(node));
}

// The executable, and what a function captured into it, live until the last launch has passed.
void Graph::retire() {
  if (!executable_ || engine_.is_over()) return;
  if (engine_.timeline.is_known_complete(last_)) return executable_.reset();
  auto retired = std::make_unique<Retired>(images_, std::move(executable_));
  engine_.retain(last_,
                 nb::capsule(retired.release(), [](void* pointer) noexcept { delete static_cast<Retired*>(pointer); }));
  keep_captured(plan);
}

void Graph::keep_captured(const dataflow::GraphPlan& of) {
  if (engine_.is_over() || engine_.timeline.is_known_complete(last_)) return;
  for (const GraphNode& node : of.nodes)
    if (const auto* const captured = node.as<dataflow::CapturedNode>()) engine_.retain(last_, captured->kept);
}

void Graph::put(std::uint32_t slot, std::uint64_t word, bool is_number) {
  std::vector<std::uint64_t>& words = is_number ? numbers_ : addresses_;
  if (words[slot] == word) return;
  words[slot] = word;
  for (const NodeIndex node : is_number ? plan.numbers[slot].users : plan.memory[slot].users) {
    if (is_dirty_[node]) continue;
    is_dirty_[node] = true;
    dirty_.push_back(node);
  }
}

// In the executable if that can take it; else in the graph, and another executable is made of that.
void Graph::set(const std::vector<NodeIndex>& nodes, Making making) {
  ContextScope scope(engine_);
  scope.bind(plan.device);
  const Table& table = engine_.table;
  if (is_behind_ || !std::all_of(nodes.begin(), nodes.end(),
                                 [this](NodeIndex node) { return is_settable_[node] && can_be_set(plan.nodes[node]); }))
    return rebuild(making);
  is_behind_ = true;
  Parameters parameters;
  for (const NodeIndex index : nodes) {
    const GraphNode& node = plan.nodes[index];
    fill_in(node, parameters);
    CUresult result = CUDA_SUCCESS;
    const char* call = "";
    switch (node.kind()) {
      case NodeKind::kernel:
        call = "cuGraphExecKernelNodeSetParams";
        result = table.cuGraphExecKernelNodeSetParams(executable_.get(), nodes_[index], &parameters.kernel);
        break;
      case NodeKind::fill:
        call = "cuGraphExecMemsetNodeSetParams";
        result = table.cuGraphExecMemsetNodeSetParams(executable_.get(), nodes_[index], &parameters.fill,
                                                      parameters.context);
        break;
      case NodeKind::copy:
        call = "cuGraphExecMemcpyNodeSetParams";
        result = table.cuGraphExecMemcpyNodeSetParams(executable_.get(), nodes_[index], &parameters.copy,
                                                      parameters.context);
        break;
      case NodeKind::captured:
        call = "cuGraphExecChildGraphNodeSetParams";
        if (const auto& graph = node.as<dataflow::CapturedNode>()->graph)
          result = table.cuGraphExecChildGraphNodeSetParams(executable_.get(), nodes_[index],
                                                            static_cast<CUgraph>(graph.get()));
        break;
      case NodeKind::join:
      case NodeKind::conditional:
        break;  // has nothing that could be set
    }
    // The driver keeps to memory of the kind that a copy was made with: that of another library's allocator may be of
    // another one.
    const bool is_other_memory = node.kind() == NodeKind::copy && result == CUDA_ERROR_INVALID_VALUE;
    if (is_other_memory || is_refused_in_body(node, result)) return rebuild(making);
    check(result, call);
    ++parameter_sets_;
  }
  is_behind_ = false;
}

// Another executable, of nodes with the parameters that the words say.
void Graph::rebuild(Making making) {
  begin();
  add_nodes(plan.nodes.size());
  use(making);
}

void Graph::begin() {
  is_behind_ = true;
  for (const NodeIndex node : std::exchange(dirty_, {})) is_dirty_[node] = false;
  CUgraph graph = nullptr;
  check(engine_.table.cuGraphCreate(&graph, 0), "cuGraphCreate");
  graph_ = GraphHandle(graph, {&engine_.devices});
  make_conditions();
  bodies_.clear();
  nodes_.clear();
  nodes_.reserve(plan.nodes.size());
  is_settable_.clear();
  graph_images_.clear();
}

// So many more, in the plan's order.
void Graph::add_nodes(std::size_t most) {
  const std::size_t end = std::min(nodes_.size() + most, plan.nodes.size());
  while (nodes_.size() < end) {
    const auto index = static_cast<NodeIndex>(nodes_.size());
    add_node(index);
    const GraphNode& node = plan.nodes[index];
    // A kernel may have another image by the next time.
    if (node.kind() == NodeKind::kernel) hold_of_graph(image_of(node));
  }
}

void Graph::hold_of_graph(const dataflow::BufferRef& image) {
  if (graph_images_.empty() || graph_images_.back().get() != image.get()) graph_images_.push_back(image);
}

// The executable of the nodes from here on. It may run beside a submission.
void Graph::use(Making making) {
  instantiate(making);
  is_behind_ = false;
  hold_images_of_plan();
}

// `each_wanted` calls a function with each word that a launch replaces: (slot, word).
template <class Each>
void Graph::put_all(Each&& each_wanted, std::vector<std::uint32_t>& strayed, bool is_number) {
  std::size_t count = 0;
  bool are_those = true;  // which the launch before replaced
  each_wanted([&](std::uint32_t slot, std::uint64_t) {
    are_those = are_those && count < strayed.size() && strayed[count] == slot;
    ++count;
  });
  if (!are_those || count != strayed.size()) {
    auto is_wanted = [&](std::uint32_t sought) {
      bool found = false;
      each_wanted([&](std::uint32_t slot, std::uint64_t) { found = found || slot == sought; });
      return found;
    };
    for (const std::uint32_t slot : strayed)
      if (!is_wanted(slot)) put(slot, as_made(slot, is_number), is_number);
  }
  strayed.clear();
  each_wanted([&](std::uint32_t slot, std::uint64_t word) {
    put(slot, word, is_number);
    if (word != as_made(slot, is_number)) strayed.push_back(slot);
  });
}

void Graph::take(const dataflow::ReplayOp& op) {
  auto each_address = [&op](auto&& f) {
    for (const dataflow::ReplayOp::Binding& each : op.bindings)
      if (each.is_memory) f(each.slot, each.address);
  };
  auto each_number = [&op](auto&& f) {
    for (const dataflow::ReplayOp::Word& each : op.numbers) f(each.slot, each.word);
  };
  put_all(each_address, strayed_addresses_, false);
  put_all(each_number, strayed_numbers_, true);
}

void Graph::launch(const dataflow::ReplayOp& op, CUstream stream) {
  engine_.now.drain();
  take(op);
  if (!dirty_.empty() || is_behind_) {
    for (const NodeIndex node : dirty_) is_dirty_[node] = false;
    set(std::exchange(dirty_, {}), Making::keeps_gil);  // other calls may be held back, which no other thread must see
  }
  check(engine_.table.cuGraphLaunch(executable_.get(), stream), "cuGraphLaunch");
}

void Graph::update(dataflow::GraphPlan made) {
  if (plan.is_closed)
    dataflow::raise(dataflow::error_types.closed, "update: the graph made at " + plan.place + " was closed");
  if (const auto difference = dataflow::first_difference(plan, made))
    dataflow::raise(dataflow::error_types.capture, "update: what was given has another shape than the graph made at " +
                                                       plan.place + ": " + *difference + "; make another graph of it");
  engine_.graph_room.prepare(dataflow::branches_by_device(plan));
  // Launches that there were use the memory of the plan before, which goes when they have passed.
  made.generation = plan.generation + 1;
  const dataflow::GraphPlan before = std::exchange(plan, std::move(made));
  keep_captured(before);
  reset_words();
  std::vector<NodeIndex> all;
  for (std::size_t index = 0; index < plan.nodes.size(); ++index) {
    if (plan.nodes[index].kind() == NodeKind::kernel) {
      ContextScope scope(engine_);
      function_of(engine_, scope, plan.nodes[index].launch(), plan.nodes[index].device);
    }
    all.push_back(static_cast<NodeIndex>(index));
  }
  set(all, Making::gives_up_gil);
  hold_images_of_plan();
}

void Graph::upload(CUstream stream) {
  engine_.now.drain();
  check(engine_.table.cuGraphUpload(executable_.get(), stream), "cuGraphUpload");
}

void Graph::close() {
  if (!std::exchange(plan.is_closed, true) && !is_being_made_) drop();
}

void Graph::drop() {
  retire();
  graph_.reset();
  images_.clear();
  graph_images_.clear();
  for (dataflow::GraphNode& node : plan.nodes) node.op.reset();
  dataflow::GraphPlan rest;
  rest.place = plan.place;
  rest.is_closed = true;
  std::swap(plan, rest);  // what it held is let go of last, and may come back here
}

}  // namespace aiocuda::driver
