// The submission thread: see submission_thread.hpp.
#include "submission_thread.hpp"

#include <utility>

#include "../thread_name.hpp"
#include "block_calls.hpp"

namespace aiocuda::driver {
namespace {
using Clock = std::chrono::steady_clock;

// So many calls may be on their way, 0.6 KB each. A call that is given behind them waits for all: 0.9 ms on an H200.
constexpr std::size_t most_given = 256;
// After work the thread looks on for so long: to wake it takes 15 to 20 us.
constexpr std::chrono::microseconds awake_time{50};
// The calls that a thread makes itself after it has waited for the device: one launch and its flag must not become
// dearer.
constexpr std::uint32_t own_calls = 4;
// While this thread sleeps, the caller goes on by itself, and calls it once in so many calls. Ten launches wake nobody.
// Of a hundred, this thread takes those that are decided when it has come.
constexpr std::uint32_t calls_to_wake = 16;
// How often an order is tried that the driver refuses.
constexpr int most_tries = 16;
// A drain keeps the GIL for so long.
constexpr std::chrono::microseconds short_wait{200};

const char* name_of(Command::Kind kind) {
  switch (kind) {
    case Command::Kind::launch:
      return "cuLaunchKernel";
    case Command::Kind::record:
      return "cuEventRecord";
    case Command::Kind::wait:
      return "cuStreamWaitEvent";
    case Command::Kind::write:
      return "cuStreamWriteValue32";
    case Command::Kind::free:
      return "cuMemFreeAsync";
    default:
      return "";  // block_calls.hpp names the others
  }
}

}  // namespace

// Binds contexts for a thread's calls, and puts back what the thread had.
class SubmissionThread::Binding {
 public:
  explicit Binding(const Table& table) : table_(table), relaxed_(table) {
    table_.cuCtxGetCurrent(&before_);
    bound_ = before_;
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;
  ~Binding() {
    if (bound_ != before_) table_.cuCtxSetCurrent(before_);
  }
  void bind(CUcontext context) {
    if (std::exchange(bound_, context) != context) table_.cuCtxSetCurrent(context);
  }

 private:
  const Table& table_;
  const RelaxedCaptures relaxed_;
  CUcontext before_ = nullptr, bound_ = nullptr;
};

void SubmissionThread::start() {
  if (way_ || asked_ == ThreadUse::never) return;
  if (asked_ == ThreadUse::automatic && std::thread::hardware_concurrency() < 2) return;
  auto way = std::make_unique<Handover<Command>>(most_given, awake_time);
  thread_ = std::thread([this, &on = *way] {
    name_this_thread("aiocuda submits");
    Binding binding(table_);
    on.run([&](const Command& command) { perform(command, binding); });
  });
  way_ = std::move(way);
  use_ = asked_;
}

void SubmissionThread::shut_down() {
  if (!thread_.joinable()) return;
  way_->stop();
  if (!has_made_all()) return thread_.detach();  // it is left alone for good, as the process is ending
  thread_.join();
  use_ = ThreadUse::never;
}

void SubmissionThread::help(std::uint64_t last) {
  Binding binding(table_);
  way_->perform(last, [&](const Command& command) { perform(command, binding); });
}

void SubmissionThread::make_all() {
  if (has_made_all()) return;
  const std::uint64_t last = way_->given();
  help(last);
  while (!has_made(last)) Handover<Command>::rest();
}

void SubmissionThread::drain() {
  if (!has_made_all() && !around_.is_over()) make_all();
}

void SubmissionThread::drain_slowly() {
  if (has_made_all() || around_.is_over()) return;
  const std::uint64_t last = way_->given();
  help(last);
  for (const auto until = Clock::now() + short_wait; !has_made(last) && Clock::now() < until;)
    Handover<Command>::rest();
  if (has_made(last)) return;
  around_.call_slowly([&] {
    while (!has_made(last)) std::this_thread::sleep_for(short_wait / 4);
    return CUDA_SUCCESS;
  });
}

bool SubmissionThread::drain_within(std::chrono::milliseconds time) {
  if (has_made_all()) return true;
  const std::uint64_t last = way_->given();
  for (const auto until = Clock::now() + time; !has_made(last);) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(short_wait / 4);
  }
  return true;
}

bool SubmissionThread::takes(const On& on) {
  if (on.is_shown) {
    drain();
    return false;
  }
  ++calls_;
  if (use_ == ThreadUse::always || !way_->is_empty()) return true;
  if (at_once_) return false;
  if (way_->is_awake()) return calls_ > own_calls;
  if (calls_ % calls_to_wake == 0) way_->call();
  return false;
}

Command& SubmissionThread::next(Command::Kind kind, const On& on) {
  while (!way_->has_room()) {
    Binding binding(table_);
    if (!way_->perform(way_->performed() + 1, [&](const Command& command) { perform(command, binding); }))
      Handover<Command>::rest();
  }
  Command& command = way_->next();
  command.kind = kind;
  command.stream = on.stream;
  command.context = on.context;
  command.range_count = 0;
  return command;
}

void SubmissionThread::perform(const Command& command, Binding& binding) noexcept {
  const CUresult broken = losses.broken(command.context);
  binding.bind(command.context);
  if (command.is_work()) {
    if (losses.spread(command.of, command.touched())) return;
    if (broken) return losses.add({broken, name_of(command.kind), command.of}, command.touched());
    return perform_work(command);
  }
  if (!broken) perform_order(command);
}

void SubmissionThread::perform_work(const Command& command) noexcept {
  Losses::Cause cause{CUDA_SUCCESS, name_of(command.kind), command.of};
  try {
    cause.result = call(command);
  } catch (const Refusal& refusal) {
    cause.result = refusal.result;
    cause.function = refusal.function;
  }
  if (cause.result != CUDA_SUCCESS) losses.add(cause, command.touched());
}

void SubmissionThread::perform_order(const Command& command) noexcept {
  // The driver may give the bytes to another array from that call on.
  if (command.kind == Command::Kind::free) losses.note_freed(command.memory.address, command.memory.value);
  CUresult result = CUDA_SUCCESS;
  for (int tries = 0; tries < most_tries; ++tries) {
    result = call(command);
    if (result == CUDA_SUCCESS || breaks_context(result)) break;
  }
  if (result == CUDA_SUCCESS) return;
  if (command.kind == Command::Kind::wait && breaks_context(result)) {
    const CUresult own = table_.cuStreamQuery(command.stream);
    if (own == CUDA_SUCCESS || own == CUDA_ERROR_NOT_READY) {  // the other stream's device was lost
      if (command.of.op) losses.add({result, name_of(command.kind), command.of}, command.touched());
      return;
    }
  }
  losses.note_broken(command.context, result);
}

CUresult SubmissionThread::call(const Command& command) const {
  switch (command.kind) {
    case Command::Kind::launch: {
      const Launch& launch = command.launch;
      void* words[Launch::most_arguments];
      for (std::uint32_t i = 0; i < launch.count; ++i)
        words[i] = const_cast<std::uint64_t*>(launch.words.data() + launch.starts[i]);
      return table_.cuLaunchKernel(launch.function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                   launch.block[1], launch.block[2], launch.shared_bytes, command.stream, words,
                                   nullptr);
    }
    case Command::Kind::fill:
      call_fill(table_, command.fill, command.stream);
      return CUDA_SUCCESS;
    case Command::Kind::copy:
      call_copy(table_, command.copy, command.stream);
      return CUDA_SUCCESS;
    case Command::Kind::record:
      return table_.cuEventRecord(command.event, command.stream);
    case Command::Kind::wait:
      return table_.cuStreamWaitEvent(command.stream, command.event, CU_EVENT_WAIT_DEFAULT);
    case Command::Kind::write:
      return table_.cuStreamWriteValue32(command.stream, command.memory.address,
                                         static_cast<cuuint32_t>(command.memory.value), CU_STREAM_WRITE_VALUE_DEFAULT);
    case Command::Kind::free:
      return table_.cuMemFreeAsync(command.memory.address, command.stream);
  }
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::driver
