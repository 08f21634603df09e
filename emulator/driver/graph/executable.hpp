// An executable graph: a plan, and the launches of it. Each launch comes after the one before, whatever streams they
// are in. A change of an executable holds for later launches.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "graph/replay.hpp"
#include "graph/update.hpp"
#include "handle_table.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::graph {

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  // Under graphs_mutex(). INVALID_VALUE: `failure` says why; NOT_SUPPORTED: it has memory or conditional nodes, and
  // another executable.
  static CUresult make(const Graph& graph, std::uint64_t flags, std::shared_ptr<Executable>& made,
                       PlanFailure& failure);
  Executable(Plan plan, std::uint64_t flags, std::shared_ptr<std::atomic<int>> executables);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  std::uint64_t flags() const noexcept { return flags_; }
  std::uint64_t id() const noexcept { return id_; }  // no graph's and no other executable's
  // Takes its places in the stores of its devices, once. Waits, where a store is full, until that device has done its
  // work; so not under graphs_mutex(), which replays need to end.
  void take_places();

  // INVALID_VALUE: memory that it allocates is allocated, or memory that it frees is not; OUT_OF_MEMORY. Returns when
  // it has ended where it copies within host memory.
  CUresult launch(const std::shared_ptr<Stream>& stream);
  // Takes the memory that launches need.
  CUresult upload();

  // Launches by kernels. May one launch it in that context: was it made for that, and uploaded?
  bool is_ready_for_device(const Context& context) const;
  // It runs because a kernel launched it, and may not be launched so meanwhile. False: it does already.
  bool begin_on_device();
  void end_on_device();
  // Likewise, to run later: even while it runs, if it has launched itself.
  bool await_turn_on_device(bool by_itself);
  Ticket launch_beside(Context& context, std::shared_ptr<Environment> parent);
  std::unique_ptr<ReplayWork> make_tail(Stream& stream);

  // The parameters of a node of the graph that it was made from, null where there is none such; and others in their
  // place, which have been made for it.
  ParametersPointer parameters(const Node& node) const;
  CUresult set_parameters(const Node& node, ParametersPointer parameters);
  CUresult set_child(const Node& node, const Graph& child);
  CUresult set_enabled(const Node& node, bool enabled);
  CUresult get_enabled(const Node& node, bool& enabled) const;
  // Under graphs_mutex().
  UpdateResult update(const Graph& graph);

 private:
  std::optional<Index> find(const Node& node) const;
  Plan& changeable();
  CUresult start(const std::shared_ptr<Stream>& stream);
  CUresult check_contexts() const;
  CUresult check_memory() const;
  CUresult back_memory();
  void change_memory(Stream& stream);
  EventBindings bind_events() const;
  CUgraphExec handle_for_device() const noexcept;  // null: the device cannot launch it

  const std::uint64_t id_ = next_id();
  const std::uint64_t flags_;
  const std::shared_ptr<std::atomic<int>> executables_;  // of the graph that it was made from
  mutable std::mutex mutex_;
  std::shared_ptr<Plan> plan_;
  bool plan_was_launched_ = false;
  Ticket last_launch_;
  std::vector<std::pair<std::shared_ptr<Context>, std::size_t>> places_;
  bool uploaded_ = false;
  bool runs_on_device_ = false;
  bool awaits_turn_on_device_ = false;
};

using ExecutableTable = HandleTable<Executable, CUgraphExec>;
ExecutableTable& executables();

}  // namespace aiocuda::emulator::graph
