// One rank's communicator. Always: an error that is noted stays, and is told by ncclCommGetAsyncError; work that waits
// for other ranks waits until they come, or this rank aborts. Nothing else ends it, as in NCCL: what it was to write is
// not there, and nobody must take it for done.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "numbers.hpp"
#include "segment.hpp"

namespace aiocuda::emulator::nccl {

// What a program asks for when it makes a communicator.
struct Options {
  bool blocks = true;   // calls that wait for other ranks return when these have come
  bool shares = false;  // those split off are aborted with this one
};

class Communicator {
 public:
  Communicator(std::string name, int ranks, int rank, CUdevice device, Options options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const noexcept { return name_; }
  int ranks() const noexcept { return ranks_; }
  int rank() const noexcept { return rank_; }
  CUdevice device() const noexcept { return device_; }
  bool blocks() const noexcept { return options_.blocks; }
  const Options& options() const noexcept { return options_; }

  // Takes this rank's place and waits until all ranks have theirs, or one is gone, or abort(). Answers, and notes, how
  // it went. Called once, on any thread.
  ncclResult_t join();
  // Runs something on a thread of its own: the state is ncclInProgress until it has ended.
  void run_later(std::function<void()> function);

  // Waits until nobody is missing: `missing` answers the rank that must call something first, or -1. Ends when that one
  // is gone, or by abort(). Answers, and notes, how it went.
  ncclResult_t connect(const std::function<int()>& missing);

  // Notes one that was split off, before it is joined.
  void add_child(const std::shared_ptr<Communicator>& child);

  // Success, ncclInProgress, or the first error noted.
  ncclResult_t state() const;
  void note(ncclResult_t error, const std::string& message);
  void begin_progress() { in_progress_.fetch_add(1); }
  void end_progress();
  std::string last_error() const;

  void abort() noexcept;
  bool is_aborted() const noexcept { return aborted_.load(); }

  // Work of this communicator that streams have and that has not ended.
  void begin_work() noexcept { work_.fetch_add(1); }
  void end_work() noexcept;
  // Blocks until there is none, or abort().
  void wait_for_work();
  // Leaves the others once there is none, and waits until those of other processes on this host have left, too.
  // NCCL does so because they may still write into this one's memory.
  void leave();

  // Waits until nobody is missing: `missing` answers the rank that must do something first, or -1. Notes
  // ncclRemoteError when that one can never do it, and waits on for abort(). False: aborted, or `is_over()`.
  bool wait(const std::function<int()>& missing, const std::function<bool()>& is_over);

  Segment& segment() noexcept { return *segment_; }
  std::mutex& turn() noexcept { return turn_; }  // of the stream that exchanges data now
  std::uint64_t pieces = 0;                      // exchanged so far, under turn()
  std::uint64_t sequence = 0;                    // of the collectives that have begun, under turn()
  std::uint64_t splits = 0;

  // The operators that the program has made, by number.
  int add_operator(const Operator& made);
  bool remove_operator(int number);
  std::optional<Operator> find_operator(int number) const;

  // The stream that the last work was put on, and an event behind it. Under the lock of groups.
  CUstream last_stream = nullptr;
  CUevent last_event = nullptr;

 private:
  bool is_gone(int rank) const noexcept;
  void mark_aborted() noexcept;

  const std::string name_;
  const int ranks_, rank_;
  const CUdevice device_;
  const Options options_;
  std::unique_ptr<Segment> segment_;
  std::atomic<bool> aborted_{false};
  std::atomic<int> in_progress_{0}, work_{0};
  std::mutex turn_;
  mutable std::mutex mutex_;
  mutable std::condition_variable progress_;
  ncclResult_t error_ = ncclSuccess;
  std::string message_;
  std::map<int, Operator> operators_;
  int next_operator_ = ncclNumOps;
  std::vector<std::weak_ptr<Communicator>> sharing_;  // those that are aborted with this one
  std::thread later_;
};

}  // namespace aiocuda::emulator::nccl
