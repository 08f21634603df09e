// Graphs that kernels launch. Each launch of a graph has an environment: it has ended when the graph has, and all that
// its kernels launched to run beside it. Then come the graphs that they launched to run behind it.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "stream.hpp"

namespace aiocuda::emulator::graph {

class Executable;
class Graph;
class Node;
struct PlanFailure;

class Environment : public std::enable_shared_from_this<Environment> {
 public:
  // `running` is what cudaGetCurrentGraphExec answers: null where the graph is none for the device. `parent` is null
  // for the launch by the host, which has no graph of its own.
  Environment(Context& context, CUgraphExec running, std::shared_ptr<Environment> parent)
      : context_(context), running_(running), parent_(std::move(parent)) {}

  CUgraphExec running() const noexcept { return running_; }
  // cudaGraphLaunch in a kernel; answers a cudaError_t.
  CUresult launch(CUgraphExec handle, std::uint64_t how);
  // Returns when all that runs beside this has ended, or the context is lost.
  void wait_for_children();
  // In the order of their launches.
  std::deque<std::shared_ptr<Executable>> take_tails();

  // Of the kernel that runs on the calling thread; null where it is of no graph.
  static Environment* current() noexcept;
  static void set_current(Environment* environment) noexcept;

 private:
  CUresult launch_beside(const std::shared_ptr<Executable>& executable, Environment& owner);
  CUresult launch_behind(const std::shared_ptr<Executable>& executable);
  void add_child(Ticket ticket);

  Context& context_;
  const CUgraphExec running_;
  const std::shared_ptr<Environment> parent_;
  std::mutex mutex_;
  std::vector<Ticket> children_;
  std::deque<std::shared_ptr<Executable>> tails_;
  int launches_ = 0;  // to run beside
};

// Why the device cannot launch a graph of these nodes; true where it can.
bool fits_device(const Graph& graph, PlanFailure& failure);

// The functions behind Services::launch_graph and Services::current_graph.
std::int32_t launch_graph(void* executable, std::uint64_t how);
void* current_graph();

}  // namespace aiocuda::emulator::graph
