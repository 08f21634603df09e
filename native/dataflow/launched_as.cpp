#include "launched_as.hpp"

#include "shape.hpp"

namespace aiocuda::dataflow {
namespace {
std::shared_ptr<const LaunchedAs> note_of(const LaunchShape& shape, const std::string& kernel, const Op& op) {
  return std::make_shared<const LaunchedAs>(LaunchedAs{shape, kernel, op.origin.maker()});
}

bool has_threads(const LaunchShape& shape) { return shape.threads.rank && !shape.empty; }

// Those of an argument that was submitted. A launch makes its note when somebody first asks for it.
std::shared_ptr<const Launches> launches_of_argument(Op& op) {
  if (op.kind != Kind::launch || op.launches) return op.launches;
  const auto& launch = static_cast<const LaunchOp&>(op);
  if (!has_threads(launch.shape)) return nullptr;
  auto own = std::make_shared<Launches>();
  own->add(note_of(launch.shape, launch.signature.kernel, op));
  return op.launches = std::move(own);
}

int collect(PyObject* object, void* into) {
  Op* const op = as_op(object);
  if (!op || op->state == State::pending) return 0;
  if (const auto found = launches_of_argument(*op)) {
    auto& launches = *static_cast<std::shared_ptr<const Launches>*>(into);
    if (!launches) {
      launches = found;
    } else if (launches != found) {
      auto both = std::make_shared<Launches>(*launches);
      both->add(*found);
      launches = std::move(both);
    }
  }
  return 0;
}

std::string text_of(const LaunchedAs& launch) {
  const std::string place = Origin::place(launch.built).text();
  const std::string built = place.empty() ? "" : " (built at " + place + ")";
  return "in the launch of " + launch.kernel + built + ", " + describe_blocks(launch.shape);
}
}  // namespace

std::shared_ptr<const Launches> launches_waited_for(Op& op) {
  std::shared_ptr<const Launches> found = op.launches;
  if (op.kind == Kind::replay) {
    const auto& replay = static_cast<const ReplayOp&>(op);
    if (replay.plan) found = replay.plan->launches;
    if (!replay.consumes) return found;
  }
  op.visit_arguments(collect, &found);
  return found;
}

std::shared_ptr<const Launches> launches_of(const GraphPlan& plan) {
  std::vector<const GraphNode*> nodes;
  for (const GraphNode& node : plan.nodes)
    if (node.as<KernelNode>() && has_threads(node.launch().shape)) nodes.push_back(&node);
  if (nodes.empty()) return nullptr;
  // An index that nobody checked is likeliest in a launch with threads to spare.
  const auto has_surplus = [](const GraphNode* node) { return surplus_threads(node->launch().shape) != 0; };
  std::stable_partition(nodes.begin(), nodes.end(), has_surplus);
  auto found = std::make_shared<Launches>();
  for (const GraphNode* node : nodes) found->add(note_of(node->launch().shape, node->name(), node->launch()));
  return found;
}

std::string describe_launches(Op& op) {
  if (op.kind == Kind::launch) return describe_blocks(static_cast<LaunchOp&>(op).shape);
  const auto launches = launches_waited_for(op);
  if (!launches) return "";
  std::string text;
  for (const auto& each : launches->known) text += (text.empty() ? "" : "; ") + text_of(*each);
  if (launches->others)
    text += "; threads= was given to " + std::to_string(launches->others) + " more of the launches that it waited for";
  return text;
}

}  // namespace aiocuda::dataflow
