// cuGraphDebugDotPrint: a graph as a picture for Graphviz, a cluster for each graph in it.
#include <fstream>
#include <ostream>
#include <string>

#include "graph/calls.hpp"
#include "graph/conditional.hpp"
#include "hexadecimal.hpp"

namespace aiocuda::emulator::graph {
namespace {

constexpr unsigned all_flags = ~0u;

// In a DOT string, with line breaks for `\n`.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char each : text) {
    if (each == '"' || each == '\\') out += '\\';
    if (each == '\n') {
      out += "\\n";
    } else {
      out += each;
    }
  }
  return out;
}

std::string name_of(const Node& node) {
  return "\"graph_" + std::to_string(node.graph().id()) + "_node_" + std::to_string(node.number()) + "\"";
}

class Picture {
 public:
  Picture(std::ostream& out, unsigned flags)
      : out_(out), flags_((flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) != 0 ? all_flags : flags) {}

  void draw(const Graph& graph) {
    out_ << "digraph dot {\n";
    draw_graph(graph);
    out_ << "}\n";
  }

 private:
  void draw_graph(const Graph& graph) {
    const std::string name = "graph_" + std::to_string(graph.id());
    out_ << "subgraph cluster_" << graph.id() << " {\nlabel=\"" << name << "\" graph[style=\"dashed\"];\n";
    for (const auto& node : graph.nodes()) draw_node(*node);
    for (const auto& node : graph.nodes()) draw_edges(*node);
    out_ << "}\n";
  }

  void draw_node(const Node& node) {
    std::string label = std::to_string(node.number()) + "\n" + node.parameters()->title();
    Details details;
    node.parameters()->describe(flags_, details);
    if ((flags_ & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0)
      details.push_back({"node handle", hexadecimal(reinterpret_cast<std::uintptr_t>(node.handle()))});
    for (const Detail& each : details) label += "\n" + each.name + " = " + each.value;
    out_ << name_of(node) << "[style=\"solid\" shape=\"rectangle\" label=\"" << escaped(label) << "\"];\n";
    if (const auto* const child = node.parameters_as<ChildParameters>()) draw_inner(node, *child->graph());
    if (const auto* const conditional = node.parameters_as<ConditionalParameters>()) {
      for (const auto& body : conditional->bodies()) draw_inner(node, *body);
    }
  }

  // A dotted line leads from the node to the first one of the graph in it.
  void draw_inner(const Node& node, const Graph& inner) {
    draw_graph(inner);
    if (inner.nodes().empty()) return;
    out_ << name_of(node) << " -> " << name_of(*inner.nodes().front()) << "[style=\"dotted\" arrowhead=\"none\"];\n";
  }

  void draw_edges(const Node& node) {
    std::size_t number = 0;
    for (const Edge& edge : node.dependencies()) {
      out_ << name_of(*edge.node) << " -> " << name_of(node);
      if ((flags_ & CU_GRAPH_DEBUG_DOT_FLAGS_EXTRA_TOPO_INFO) != 0) {
        out_ << "[label=\"" << number << (is_default(edge.data) ? "" : " (programmatic)") << "\"]";
      }
      out_ << ";\n";
      ++number;
    }
  }

  std::ostream& out_;
  const unsigned flags_;
};

}  // namespace
}  // namespace aiocuda::emulator::graph

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned flags) {
  if (const CUresult error = check_call()) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(handle);
  if (!graph || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ofstream file(path);
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  Picture(file, flags).draw(*graph);
  file.close();
  return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
