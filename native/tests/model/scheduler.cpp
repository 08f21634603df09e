#include "scheduler.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace aiocuda::model {
namespace {

constexpr std::size_t stack_bytes = 256 << 10;
constexpr Duration yield_time = std::chrono::microseconds(100);
constexpr std::size_t told_steps = 80;  // in what a failure says
constexpr std::size_t most_held = 10;   // steps: a store is seen after a while

struct Store {
  const void* address;
  std::uint64_t bits;
  std::function<void()> write;
  std::size_t held_for = 0;  // how many steps were made before it
};

struct Fiber {
  std::function<void()> function;
  std::unique_ptr<char[]> stack;
  ucontext_t context{};                          // to begin with
  jmp_buf place{};                               // to go on from
  const std::function<bool()>* ready = nullptr;  // null: it can go on
  Duration deadline = Duration::max();
  bool has_begun = false, has_ended = false, has_yielded = false, is_timed_out = false;
  std::deque<Store> stores;
};

// A possible next step: a thread goes on, or the oldest store of one is flushed.
struct Action {
  std::size_t thread;
  bool is_flush;
  std::size_t cost;
};

struct Choice {
  std::size_t taken, count;
};

class Run {
 public:
  Run(const Limits& limits, std::vector<Choice>& choices, std::vector<std::unique_ptr<char[]>>& stacks)
      : limits_(limits), choices_(choices), stacks_(stacks) {}

  void run(const std::function<void()>& program);
  std::size_t spawn(std::function<void()> function);
  void go_on(const char* name);  // the running thread is about to do something
  void fail(const std::string& what);
  bool wait(const char* name, const std::function<bool()>& ready, Duration deadline);
  void yield();

  // A read is no step. It gives the value that the thread sees, or, without a thread, the one that all see.
  template <class F>
  auto look(F&& f, const Fiber* viewer) {
    is_looking_ = true;
    viewer_ = viewer;
    auto seen = f();
    is_looking_ = false;
    return seen;
  }
  bool can_go_on(std::size_t thread) {
    const Fiber& each = fiber(thread);
    return !each.has_ended && !each.has_yielded && (each.is_timed_out || !each.ready || look(*each.ready, &each));
  }
  void forget(const void* address) {
    for (const auto& each : fibers_)
      std::erase_if(each->stores, [address](const Store& store) { return store.address == address; });
  }
  bool is_looking() const { return is_looking_; }
  const Fiber* viewer() { return is_looking_ ? viewer_ : &self(); }

  Fiber& self() { return *fibers_[current_]; }
  Fiber& fiber(std::size_t thread) { return *fibers_[thread]; }
  Duration now() const { return now_; }
  const std::string& failure() const { return failure_; }

 private:
  static void begin();
  std::vector<Action> actions();
  std::size_t choose(const std::vector<Action>& actions);
  std::size_t next();
  void switch_to(std::size_t thread);
  bool let_time_pass();
  void leave_for_ever();

  const Limits& limits_;
  std::vector<Choice>& choices_;
  std::vector<std::unique_ptr<char[]>>& stacks_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::pair<std::size_t, const char*>> steps_;
  ucontext_t main_{};
  std::size_t current_ = 0, depth_ = 0, deviations_ = 0;
  Duration now_{};
  std::string failure_;
  bool is_looking_ = false;  // somebody asks what is, and does nothing
  const Fiber* viewer_ = nullptr;
};

Run* active = nullptr;

void Run::begin() {
  Run& run = *active;
  Fiber& self = run.self();
  try {
    self.function();
  } catch (const std::exception& error) {
    run.fail(std::string("it threw ") + error.what());
  } catch (...) {
    run.fail("it threw");
  }
  self.has_ended = true;
  self.function = nullptr;
  run.go_on("end");
}

std::size_t Run::spawn(std::function<void()> function) {
  auto fiber = std::make_unique<Fiber>();
  fiber->function = std::move(function);
  if (stacks_.empty()) {
    fiber->stack = std::make_unique<char[]>(stack_bytes);
  } else {
    fiber->stack = std::move(stacks_.back());
    stacks_.pop_back();
  }
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = stack_bytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &Run::begin, 0);
  fibers_.push_back(std::move(fiber));
  return fibers_.size() - 1;
}

void Run::run(const std::function<void()>& program) {
  active = this;
  current_ = spawn(program);
  self().has_begun = true;
  swapcontext(&main_, &self().context);
  active = nullptr;
  // After a failure threads stand where they were: what they hold is never given back.
  if (failure_.empty()) {
    for (const auto& fiber : fibers_) stacks_.push_back(std::move(fiber->stack));
  } else {
    for (auto& fiber : fibers_) fiber.release();
  }
}

void Run::leave_for_ever() {
  setcontext(&main_);
  std::terminate();
}

void Run::fail(const std::string& what) {
  failure_ = what + "; the last steps were:";
  const std::size_t first = steps_.size() - std::min(steps_.size(), told_steps);
  for (std::size_t i = first; i < steps_.size(); ++i)
    failure_ += "\n  thread " + std::to_string(steps_[i].first) + ": " + steps_[i].second;
  leave_for_ever();
}

// The plain order costs nothing: stores are seen at once, each thread goes on as long as it can, and then the next one.
std::vector<Action> Run::actions() {
  std::vector<Action> found;
  for (std::size_t thread = 0; thread < fibers_.size(); ++thread)
    if (const auto& stores = fiber(thread).stores; !stores.empty() && stores.front().held_for >= most_held)
      return {{thread, true, 0}};
  std::size_t cost = 0;
  for (std::size_t thread = 0; thread < fibers_.size(); ++thread)
    if (const auto& stores = fiber(thread).stores; !stores.empty() && !stores.front().held_for) {
      found.push_back({thread, true, 0});
      cost = 1;
    }
  const std::size_t holding = cost;
  for (std::size_t i = 0; i < fibers_.size(); ++i) {
    const std::size_t thread = (current_ + i) % fibers_.size();
    if (!can_go_on(thread)) continue;
    found.push_back({thread, false, cost});
    cost = holding + 1;
  }
  for (std::size_t thread = 0; thread < fibers_.size(); ++thread)
    if (const auto& stores = fiber(thread).stores; !stores.empty() && stores.front().held_for)
      found.push_back({thread, true, 0});
  std::erase_if(found, [&](const Action& each) { return deviations_ + each.cost > limits_.deviations; });
  return found;
}

std::size_t Run::choose(const std::vector<Action>& actions) {
  if (actions.size() == 1) return 0;
  if (depth_ == choices_.size()) choices_.push_back({0, actions.size()});
  return choices_[depth_++].taken;
}

// A time-out ends the wait that ends first.
bool Run::let_time_pass() {
  bool has_yielded = false;
  for (const auto& each : fibers_) has_yielded |= std::exchange(each->has_yielded, false);
  if (has_yielded) return true;
  const auto first = std::min_element(fibers_.begin(), fibers_.end(), [](const auto& a, const auto& b) {
    return (a->has_ended ? Duration::max() : a->deadline) < (b->has_ended ? Duration::max() : b->deadline);
  });
  if ((*first)->has_ended || (*first)->deadline == Duration::max()) return false;
  now_ = std::max(now_, (*first)->deadline);
  (*first)->is_timed_out = true;
  if (!limits_.on_time_out) return true;
  const std::string wrong = look(limits_.on_time_out, nullptr);
  if (!wrong.empty()) fail("a wait ended by its time-out: " + wrong);
  return true;
}

std::size_t Run::next() {
  for (;;) {
    if (steps_.size() > limits_.steps) fail("it does not end");
    const std::vector<Action> possible = actions();
    if (possible.empty()) {
      const bool is_over =
          std::all_of(fibers_.begin(), fibers_.end(), [](const auto& each) { return each->has_ended; });
      if (is_over) leave_for_ever();
      if (!let_time_pass()) fail("all threads wait");
      continue;
    }
    const Action action = possible[choose(possible)];
    deviations_ += action.cost;
    if (!action.is_flush) {
      for (const auto& each : fibers_)
        for (Store& store : each->stores) ++store.held_for;
      return action.thread;
    }
    auto& stores = fiber(action.thread).stores;
    steps_.emplace_back(action.thread, "(its store is seen)");
    stores.front().write();
    stores.pop_front();
  }
}

void Run::switch_to(std::size_t thread) {
  if (thread == current_) return;
  Fiber& before = self();
  current_ = thread;
  // Jumps leave the signal mask alone, so they need no call of the system's.
  if (_setjmp(before.place)) return;
  if (!std::exchange(self().has_begun, true)) setcontext(&self().context);
  _longjmp(self().place, 1);
}

void Run::go_on(const char* name) {
  if (is_looking_) return;
  switch_to(next());
  steps_.emplace_back(current_, name);
  for (std::size_t thread = 0; thread < fibers_.size(); ++thread)
    if (thread != current_) fiber(thread).has_yielded = false;
}

bool Run::wait(const char* name, const std::function<bool()>& ready, Duration deadline) {
  if (is_looking_) return true;
  Fiber& me = self();
  me.ready = &ready;
  me.deadline = deadline;
  go_on(name);
  me.ready = nullptr;
  me.deadline = Duration::max();
  return !std::exchange(me.is_timed_out, false) || look(ready, &me);
}

void Run::yield() {
  now_ += yield_time;
  self().has_yielded = true;
  go_on("yield");
}

bool has_next(std::vector<Choice>& choices) {
  while (!choices.empty() && choices.back().taken + 1 == choices.back().count) choices.pop_back();
  if (choices.empty()) return false;
  ++choices.back().taken;
  return true;
}

}  // namespace

Found explore(const std::function<void()>& program, const Limits& limits) {
  Found found;
  std::vector<Choice> choices;
  std::vector<std::unique_ptr<char[]>> stacks;
  do {
    Run run(limits, choices, stacks);
    run.run(program);
    ++found.orders;
    found.failure = run.failure();
    if (found.failure.empty() && found.orders == limits.orders)
      found.failure = "there are more orders than were to be run";
  } while (found.failure.empty() && has_next(choices));
  return found;
}

std::size_t spawn(std::function<void()> function) { return active->spawn(std::move(function)); }
void join(std::size_t thread) {
  wait_until("join", [thread] { return active->fiber(thread).has_ended; });
}
void require(bool holds, const char* what) {
  if (!holds) active->fail(what);
}
void step(const char* name) { active->go_on(name); }
void wait_until(const char* name, const std::function<bool()>& ready) { active->wait(name, ready, Duration::max()); }
bool wait_until(const char* name, const std::function<bool()>& ready, Duration time) {
  return active->wait(name, ready, active->now() + time);
}
void yield() { active->yield(); }
Duration now() { return active->now(); }
bool is_looking() { return active->is_looking(); }

void store(const void* address, std::uint64_t bits, std::function<void()> write) {
  active->self().stores.push_back({address, bits, std::move(write)});
}
bool is_held_back(const void* address, std::uint64_t& bits) {
  const Fiber* const viewer = active->viewer();
  if (!viewer) return false;
  const auto& stores = viewer->stores;
  const auto last =
      std::find_if(stores.rbegin(), stores.rend(), [address](const Store& each) { return each.address == address; });
  if (last == stores.rend()) return false;
  bits = last->bits;
  return true;
}
void forget(const void* address) { active->forget(address); }
void flush() {
  auto& stores = active->self().stores;
  while (!stores.empty()) {
    stores.front().write();
    stores.pop_front();
  }
}

}  // namespace aiocuda::model
