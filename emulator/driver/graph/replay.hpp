// A launch of an executable: one piece of work of its stream, which runs the steps of a plan on the stream's thread.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "graph/device_launch.hpp"
#include "graph/plan.hpp"
#include "shuffle.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::graph {

// The events of a launch, looked up when it is submitted: it records, and waits for, what they are then.
struct EventBindings {
  struct Record {
    std::shared_ptr<EventRecord> record;
    std::shared_ptr<std::atomic<bool>> has_passed;
    checking::Point point;                       // null where nothing is checked
    std::shared_ptr<const SharedRecord> shared;  // null where no other process knows of it
  };
  struct Wait {
    Ticket ticket;
    std::vector<checking::Point> points;  // what it stands for; a ticket that has passed stands for nothing
  };
  std::vector<Record> records;  // by Step::number
  std::vector<Wait> waits;
};

class ReplayWork final : public Work {
 public:
  // The stream is the one that runs it.
  // `executable` is what kernels learn, if they may launch it. It is held, and told of the end, where a kernel has
  // launched this; then `parent` is the environment that it runs in, null for a launch behind another graph.
  ReplayWork(std::shared_ptr<const Plan> plan, Stream& stream, EventBindings bindings, CUgraphExec executable,
             std::shared_ptr<Executable> launched_by_device = nullptr, std::shared_ptr<Environment> parent = nullptr);
  ~ReplayWork() override;
  void run() override;
  // From now on kernels may launch graphs.
  static void expect_launches_by_device();

 private:
  enum class Then { go_on, stop };
  // A step, by its place in a sequence.
  struct Place {
    std::size_t sequence;
    Index step;
  };
  using Points = std::vector<checking::Point>;

  using Tails = std::deque<std::shared_ptr<Executable>>;

  void run_nodes();
  // The nodes, and what their kernels launch to run beside them; answers what comes behind.
  Tails run_environment(const std::shared_ptr<Environment>& parent);
  void set_priorities();
  void assign_default_values();
  bool is_plain() const noexcept { return !order_ && !plan_->branches; }
  const Step& step_at(Place place) const { return plan_->sequences[place.sequence][place.step]; }

  // In the plan's order, unchecked.
  Then run_plainly(std::size_t sequence);
  // In an order that is shuffled, where that is wanted, and with races checked: behind some operation, which is null
  // at the beginning, the operations of all steps.
  Then run_with_care(std::size_t sequence, const checking::Point& behind, Points& operations);
  Index choose(std::size_t sequence, std::vector<Index>& ready);
  Then run_checked(Place place, const Points& after, checking::Point& operation);

  Then run_step(Place place);
  Then run_work(const Step& step);
  // `operation` is that of the node, and then the last of its bodies'.
  Then run_conditional(Place place, checking::Point& operation);
  Then run_body(Place place, std::size_t body, checking::Point& operation);
  void pass(const EventBindings::Record& record);
  checking::Checker::Lane& lane_at(Place place) const;

  const std::shared_ptr<const Plan> plan_;
  Stream& stream_;
  const EventBindings bindings_;
  const CUgraphExec executable_;
  const std::shared_ptr<Executable> launched_by_device_;
  const std::shared_ptr<Environment> parent_;
  std::optional<NodeOrder> order_;
  std::uint64_t steps_begun_ = 0;
};

}  // namespace aiocuda::emulator::graph
