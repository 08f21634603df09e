// An execution: what is done for one `await`, `sync`, `submit` or future of an operation, from its first step to its
// result.
//
// Always true: a step goes on where the last one stopped, and nothing is looked at twice (dataflow/path.hpp). After a
// function of the program's own, what follows it is submitted by another step, or after a look at the time: by then
// nobody may want it any more. After `operations_in_turn` operations, too, the rest is for another step: others have
// their turn. An execution that finds a stream full stands in line. It waits for a kernel that is not
// loaded as for work of another thread. Guarded by the GIL; steps hold the right to submit while they walk, and not
// while they wait.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "../dataflow/path.hpp"
#include "host_wait.hpp"
#include "outstanding.hpp"
#include "tensors.hpp"

namespace aiocuda::driver {

// Remembers where the ticks are of an operation that was submitted without waiting, as far as that went: at its end, or
// where a function waits for its value. Throws Refusal.
void mark(Engine& engine, Op& op, std::span<const Tick> ticks);

class Execution {
 public:
  // Both objects are kept. The placement is in force in all that is done.
  Execution(Engine& engine, nb::object root, nb::object placement)
      : engine_(engine),
        root_(std::move(root)),
        placement_(std::move(placement)),
        op_(dataflow::as_op(root_)),
        where_(nb::inst_ptr<dataflow::Placement>(placement_)),
        tensors_(engine) {}
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution() { drop_claim(); }

  const nb::object& root() const { return root_; }
  dataflow::Op& op() const { return *op_; }
  const dataflow::Placement& placement() const { return *where_; }

  // So many operations are submitted in one step, as long as nobody waits for work of another library. On an H200 they
  // take 0.4 ms.
  static constexpr std::uint32_t operations_in_turn = 128;
  // The waiter that is told when it is worth going on: the token comes out of the port. With `spins` it spins as long
  // as the placement says, before it waits. `most`: so many operations are submitted in this step.
  struct Listener {
    const std::shared_ptr<completion::Port>& port;
    completion::Token token;
    bool spins = true;
    std::uint32_t most = operations_in_turn;
  };
  enum class Driven : std::uint8_t {
    complete,     // the result is there
    completes,    // it will be there when the token comes out with 0
    goes_on,      // there will be more to do when the token comes out
    turn_is_over  // there is more to do, when others have had their turn
  };
  // Submits what can be. The token is taken unless it is complete, or the turn is over.
  Driven drive(const Listener& listener);
  // A token came out for which `drive` said `completes`. True: the result is there; a driver's error is raised.
  bool ended(std::int32_t result);
  // A token that `drive` took is not waited for any more. True: it will not come out, and is the caller's again.
  static bool leave(const dataflow::Op& op, completion::Token token);

  // Submits what can be submitted before the host must wait for a result, and waits for room; marks where it ends.
  // Raises where that leaves out an operation with an array of another library's.
  void submit();
  // The same as a step of an await, which waits for nothing, if it was built with such operations.
  void begin_tensors();
  // The same, waiting for nothing. True: a function was called, or the turn is over, and there is more to submit.
  bool submit_more();
  // Submits and waits, giving up the GIL. False: one's patience was over first.
  bool wait(const Patience& patience);

  // For the garbage collector.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(root_.ptr());
    Py_VISIT(placement_.ptr());
    if (on_host_) {
      Py_VISIT(on_host_->loading.work.ptr());
      Py_VISIT(on_host_->loading.subject.ptr());
    }
    return path_.traverse(visit, arg);
  }
  void clear() {
    drop_claim();
    path_.clear();
    forget_host();
  }

 private:
  // A `map` whose value is there, and the placement that its function runs under.
  struct Due {
    nb::object op, placement;
  };
  // The place where a walk stopped before its end.
  struct Halt {
    Few<Tick> waits{};       // what the host must wait for
    std::vector<Due> due{};  // functions of values that are there: to be called now
    struct Full {
      completion::LineId line;
      std::uint64_t most;
      std::uint64_t weight = 1;
      Tick until{};  // must pass for that, where it is a stream
    };
    std::optional<Full> full{};   // a stream without room for it, or a device
    bool stands_in_line = false;  // for that room; else it is in the middle of another submission, and only waits
    HostNeed host{};              // work of another thread
    Claims::Place claim = 0;      // the execution's so far
    CompletionRef room{};         // of the driver's queues, where others wait behind this execution
    bool is_outermost = false;
    bool is_turn_over = false;  // nothing must come first, but others have their turn
  };
  using Halted = dataflow::Rare<Halt>;  // null: it came to its end, as most do
  // How far it came.
  struct Reached {
    bool is_submitted = false;
    bool is_complete = false;
    bool is_paused = false;     // a function was called: what follows it is for another step, if there is one
    bool needs_host = false;    // `elsewhere` is work on the host, and the walk stopped for it
    CompletionRef elsewhere{};  // what another thread does: a function, or work on the host
    Halted halt{};
    Few<Tick> incomplete{};  // once it is submitted: the part that has not passed

    const Few<Tick>& waits() const { return halt ? halt->waits : incomplete; }  // for the device
    bool is_full() const { return halt && halt->full; }
    bool is_turn_over() const { return halt && halt->is_turn_over; }
  };
  struct Ran;

  // Why a walk did not come to its end.
  struct Stop {
    const std::optional<dataflow::FullMemory>& full_memory;
    bool is_full, is_queue_full, is_turn_over;
    const std::vector<Tick>& waits;
  };

  bool walk(Halted& halted);
  template <class Sink>
  bool walk_with(Acting& acting, bool outermost, dataflow::Scratch<nb::handle>& scratch, Halted& halted);
  bool walk_traced(Acting& acting, bool outermost, dataflow::Scratch<nb::handle>& scratch, Halted& halted);
  bool has_stopped(const Stop& stop, HostNeed need, Acting& acting, bool outermost, Halted& halted);
  // Whatever becomes of it, what it submitted is before what other libraries enqueue next.
  template <class F>
  auto before_others(F&& f);
  std::vector<dataflow::Use> uses_left() const;
  bool has_tensors_left() const;
  CompletionRef load_ahead();
  bool keep_together(const Reached& reached);
  Reached step();
  [[noreturn]] void raise_tensors_left() const;
  CompletionRef wait_on_host(const Halt& halt, bool blocks);
  void keep_files(Halt& halt);
  // The work on the host is done, and has been used.
  void forget_host() {
    if (!on_host_) [[likely]]
      return;
    const OnHost dropped = std::exchange(*on_host_, {});
  }
  void drop_claim() {
    if (on_host_ && std::exchange(on_host_->claim, 0)) engine_.claims.drop(this);
  }
  Ran run_due(const std::vector<Due>& due);
  // `blocks`: the thread has nothing else to do, and may do itself what nobody can interrupt.
  Reached submit_root(bool blocks);
  void submit_after_halt(bool blocks, Reached& reached);
  Reached advance(bool blocks);
  void submit_whole();
  bool submit_part(const Reached& reached);
  CompletionRef completion_of(const Reached& reached, std::chrono::microseconds budget);
  completion::Waiter waiter(bool blocks, completion::Token token = nullptr) const;
  CompletionRef stand(const Halt::Full& full, completion::Waiter waiter);
  bool wait_for_room(const Halt& halt, const Patience& patience);
  bool wait_watched(const Patience& patience);

  Engine& engine_;
  nb::object root_, placement_;
  dataflow::Op* const op_;  // the native parts of both
  const dataflow::Placement* const where_;
  dataflow::Path path_;
  std::uint32_t most_in_turn_ = operations_in_turn;
  Tensors tensors_;
  dataflow::Rare<OnHost> on_host_;  // null: it has never waited for anything there, as most have not
};

// Has everything passed that the operation submitted? (It must have been submitted.)
bool has_passed(Engine& engine, nb::handle op);

// Raises what Python makes of a callback that executes something while a graph is recorded.
void refuse_while_recording(nb::handle op);

}  // namespace aiocuda::driver
