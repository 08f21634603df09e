// What graphs cost on the emulated driver: a node of a replay beside a launch of its own, and what is done to a graph
// around it. Least times of several runs, in nanoseconds for each node.
//   bench_graphs [nodes]
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int runs = 200;

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", call, name);
  std::exit(1);
}
#define CHECK(call) check((call), #call)

template <class F>
double best_ns(F f) {
  double best = 1e18;
  for (int i = 0; i < runs; ++i) {
    const auto before = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - before).count());
  }
  return best;
}

CUDA_KERNEL_NODE_PARAMS kernel_parameters(CUfunction function) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  parameters.func = function;
  parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
  return parameters;
}

// A chain of kernels, or of empty nodes where there is no function.
CUgraph make_chain(int nodes, CUfunction function, std::vector<CUgraphNode>& made) {
  CUgraph graph = nullptr;
  CHECK(cuGraphCreate(&graph, 0));
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(function);
  made.clear();
  for (int i = 0; i < nodes; ++i) {
    CUgraphNode node = nullptr;
    const CUgraphNode* const after = made.empty() ? nullptr : &made.back();
    const std::size_t count = made.empty() ? 0 : 1;
    if (function != nullptr) {
      CHECK(cuGraphAddKernelNode(&node, graph, after, count, &parameters));
    } else {
      CHECK(cuGraphAddEmptyNode(&node, graph, after, count));
    }
    made.push_back(node);
  }
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  const int nodes = argc > 1 ? std::atoi(argv[1]) : 1000;
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CUstream stream = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoad(&module, TEST_MODULE_PATH));
  CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const auto report = [&](const char* what, double ns) { std::printf("%-52s %9.1f ns a node\n", what, ns / nodes); };

  report("launches one by one, and a wait for the last", best_ns([&] {
           for (int i = 0; i < nodes; ++i) CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
           CHECK(cuStreamSynchronize(stream));
         }));
  std::vector<CUgraphNode> made;
  for (const CUfunction function : {nothing, CUfunction{nullptr}}) {
    const bool kernels = function != nullptr;
    const CUgraph graph = make_chain(nodes, function, made);
    CUgraphExec executable = nullptr;
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    report(kernels ? "a graph of kernels, launched and waited for" : "a graph of empty nodes, launched and waited for",
           best_ns([&] {
             CHECK(cuGraphLaunch(executable, stream));
             CHECK(cuStreamSynchronize(stream));
           }));
    if (kernels) {
      const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(function);
      report("the parameters of each kernel set", best_ns([&] {
               for (const CUgraphNode node : made) CHECK(cuGraphExecKernelNodeSetParams(executable, node, &parameters));
             }));
      CUgraphExecUpdateResultInfo info{};
      report("the executable updated with a graph", best_ns([&] { CHECK(cuGraphExecUpdate(executable, graph, &info)); }));
      report("the graph instantiated and its executable destroyed", best_ns([&] {
               CUgraphExec another = nullptr;
               CHECK(cuGraphInstantiate(&another, graph, 0));
               CHECK(cuGraphExecDestroy(another));
             }));
    }
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
  }
  report("a graph made of kernels, and destroyed", best_ns([&] { CHECK(cuGraphDestroy(make_chain(nodes, nothing, made))); }));
  return 0;
}
