// The submission thread: it makes calls of the driver that have been decided, and has no Python, so that the thread
// that decides goes on.
//
// Always true: each call is made once, in the order in which they were given; a call that is made at once, and not
// given, comes behind all of them. Work that is refused is left out, with what depends on it, and noted in `losses`.
// Order that is refused is tried again, and if it is refused for good, its context counts as broken. Calls are given
// under the GIL; the thread takes no lock of Python's, and asks nothing of the parts.
#pragma once
#include <chrono>
#include <memory>
#include <span>
#include <thread>

#include "../handover.hpp"
#include "captures.hpp"
#include "command.hpp"
#include "losses.hpp"
#include "surroundings.hpp"
#include "table.hpp"

namespace aiocuda::driver {

// Which calls go by the thread.
enum class ThreadUse : std::uint8_t { never, automatic, always };

class SubmissionThread {
 public:
  SubmissionThread(const Table& table, Surroundings& around) : table_(table), around_(around) {}
  SubmissionThread(const SubmissionThread&) = delete;
  SubmissionThread& operator=(const SubmissionThread&) = delete;
  ~SubmissionThread() {
    make_all();
    shut_down();
  }

  // Before the first device is opened.
  void set(ThreadUse use) { asked_ = use; }
  // Starts the thread, once; nothing if it has nothing to do. Throws std::system_error.
  void start();
  // Ends it, if all calls have been made. Else it has stopped inside the driver, and stays there.
  void shut_down();

  // Are calls given at all?
  bool is_used() const { return use_ != ThreadUse::never; }
  std::uint64_t given() const { return is_used() ? way_->given() : 0; }
  std::uint64_t made() const { return is_used() ? way_->performed() : 0; }
  bool has_made(std::uint64_t number) const { return !is_used() || way_->performed() >= number; }
  bool has_made_all() const { return !is_used() || way_->is_empty(); }

  // Has all calls made that were given, by helping or by waiting. Nothing after the engine's end.
  void drain();
  // The same. A long wait gives up the GIL.
  void drain_slowly();
  // The same without the GIL, for some time. False: there are still some.
  bool drain_within(std::chrono::milliseconds time);

  // Is this call to be given? If not, the caller makes it now: all those given before have been made.
  bool takes(const On& on);
  // The next call, of a stream. It is on its way when `give` has been called.
  Command& next(Command::Kind kind, const On& on);
  void give() { way_->give(); }

  // From here on calls are few again: somebody has waited for the device.
  void note_wait() { calls_ = 0; }
  // Calls of one step of Python's that blocks until they are made: to give them would save nothing.
  class AtOnce {
   public:
    explicit AtOnce(SubmissionThread& submission) : submission_(submission) { ++submission_.at_once_; }
    AtOnce(const AtOnce&) = delete;
    AtOnce& operator=(const AtOnce&) = delete;
    ~AtOnce() { --submission_.at_once_; }

   private:
    SubmissionThread& submission_;
  };

  // Has a stream done all its work, is its context well? Any thread may ask.
  CUresult query(CUstream stream, CUcontext context) const {
    const bool is_all = has_made_all();  // before it is asked, and before what the calls have broken
    if (const CUresult broken = losses.broken(context)) return broken;
    const CUresult answer = table_.cuStreamQuery(stream);
    return answer == CUDA_SUCCESS && !is_all ? CUDA_ERROR_NOT_READY : answer;
  }

  Losses losses;

 private:
  class Binding;
  void help(std::uint64_t last);
  void make_all();
  void perform(const Command& command, Binding& binding) noexcept;
  void perform_work(const Command& command) noexcept;
  void perform_order(const Command& command) noexcept;
  CUresult call(const Command& command) const;

  const Table& table_;
  Surroundings& around_;
  ThreadUse asked_ = ThreadUse::never, use_ = ThreadUse::never;
  int at_once_ = 0;
  std::uint32_t calls_ = 0;  // that were to be made since somebody waited for the device
  std::unique_ptr<Handover<Command>> way_;
  std::thread thread_;
};

}  // namespace aiocuda::driver
