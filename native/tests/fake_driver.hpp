// A driver for tests: its table counts the calls of each function, refuses those that it is told to, and answers
// handles. It knows which work on its streams comes after which, by the events that they record and wait for.
//
// Always true: no handle is null, and none is given out twice; a call with a handle that is not there, or a second end
// of one, is noted in `misuses`. One thread at a time changes what it answers; any thread may call.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/table.hpp"

namespace aiocuda::driver::tests {

enum class Function : std::size_t {
#define F(name) name,
  AIOCUDA_DRIVER_FUNCTIONS(F)
#undef F
};
inline constexpr std::size_t function_count = 0
#define F(name) +1
    AIOCUDA_DRIVER_FUNCTIONS(F)
#undef F
    ;

// As messages name it.
std::string name_of(Function function);

class FakeDriver {
 public:
  struct Call {
    Function function;
    std::vector<std::uint64_t> arguments;  // those that are numbers or pointers; of all others 0
  };
  // Work that a stream was given: what of all streams had to pass before it.
  struct Work {
    Function function;
    std::vector<std::uint64_t> arguments;
    CUstream stream;
    std::uint64_t count;
    std::map<CUstream, std::uint64_t> after;

    bool is_after(const Work& other) const {
      if (stream == other.stream) return count > other.count;
      const auto known = after.find(other.stream);
      return known != after.end() && known->second >= other.count;
    }
  };

  FakeDriver() { current() = this; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;
  ~FakeDriver() { current() = nullptr; }

  Table table() const;

  std::size_t count(Function function) const {
    std::lock_guard lock(mutex_);
    return counts_[index(function)];
  }
  // All calls since the last `forget_calls`, except those of contexts and capture modes.
  std::vector<Call> calls(Function function) const {
    std::lock_guard lock(mutex_);
    std::vector<Call> found;
    for (const Call& call : calls_)
      if (call.function == function) found.push_back(call);
    return found;
  }
  std::vector<Call> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  // Launches, copies, fills, allocations and frees that streams were given, since the last `forget_calls`. The
  // arguments of a graph's launch are the addresses that its nodes fill.
  std::vector<Work> work() const {
    std::lock_guard lock(mutex_);
    return work_;
  }
  void forget_calls() {
    std::lock_guard lock(mutex_);
    calls_.clear();
    work_.clear();
    counts_.fill(0);
  }

  // The n-th call of a function from here on is refused, and `times - 1` behind it.
  void refuse(Function function, CUresult answer = CUDA_ERROR_OUT_OF_MEMORY, std::size_t nth = 1,
              std::size_t times = 1) {
    std::lock_guard lock(mutex_);
    refusals_.push_back({function, answer, made_[index(function)] + nth, made_[index(function)] + nth + times});
  }
  // The n-th call from here on is refused, whatever it is for. Calls that cannot fail while nothing is broken do not
  // count.
  void refuse_nth(std::size_t nth, CUresult answer = CUDA_ERROR_OUT_OF_MEMORY) {
    std::lock_guard lock(mutex_);
    refused_at_ = refusable_calls_ + nth;
    refused_with_ = answer;
  }
  bool has_refused_nth() const {
    std::lock_guard lock(mutex_);
    return refused_at_ && refusable_calls_ >= refused_at_;
  }
  // A call that was to be refused and has not come is not refused any more.
  void refuse_no_more() {
    std::lock_guard lock(mutex_);
    if (refusable_calls_ < refused_at_) refused_at_ = 0;
  }
  // Which function that was, as messages name it; empty where there was none.
  std::string refused_function() const {
    std::lock_guard lock(mutex_);
    return refused_function_;
  }
  CUcontext context() const { return context_; }  // of this thread
  // From here on every question about a stream, and every call that puts work on it, is refused.
  void break_stream(CUstream stream, CUresult answer = CUDA_ERROR_ILLEGAL_ADDRESS) {
    std::lock_guard lock(mutex_);
    broken_[stream] = answer;
  }
  void capture(CUstream stream, bool is_captured = true) {
    std::lock_guard lock(mutex_);
    if (is_captured)
      captured_.insert(stream);
    else
      captured_.erase(stream);
  }

  // From here on nothing that a stream is given passes, until it is let go on.
  void hold(CUstream stream) {
    std::lock_guard lock(mutex_);
    streams_[stream].is_held = true;
  }
  void go_on(CUstream stream) {
    std::vector<std::pair<std::uint32_t*, std::uint32_t>> writes;
    {
      std::lock_guard lock(mutex_);
      Stream& of = streams_[stream];
      of.is_held = false;
      of.passed = of.submitted;
      writes = std::exchange(of.writes, {});
    }
    for (const auto& [address, value] : writes) __atomic_store_n(address, value, __ATOMIC_RELEASE);
  }
  // Work that the test itself puts on a stream.
  void submit(CUstream stream) {
    std::lock_guard lock(mutex_);
    advance(stream);
  }

  template <class Handle>
  bool is_alive(Handle handle) const {
    std::lock_guard lock(mutex_);
    return alive_.contains(reinterpret_cast<std::uint64_t>(handle));
  }
  bool is_allocated(CUdeviceptr address) const {
    std::lock_guard lock(mutex_);
    return alive_.contains(address);
  }
  // How many things of the kind that a function makes there are.
  std::size_t alive(Function maker) const {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(alive_.begin(), alive_.end(), [&](const auto& each) { return each.second == maker; }));
  }
  std::size_t alive() const {
    std::lock_guard lock(mutex_);
    return alive_.size();
  }
  std::vector<std::string> misuses() const {
    std::lock_guard lock(mutex_);
    return misuses_;
  }
  // The streams that a stream waits for, by the records of the events that it was given.
  bool waits_for(CUstream stream, CUstream other) const {
    std::lock_guard lock(mutex_);
    return waits_.contains({stream, other});
  }

  std::map<CUdeviceptr, std::uint64_t> allocations;       // of others: what pointers are asked about
  std::map<CUstream, unsigned long long> stream_numbers;  // of those whose number is not that of their handle
  // Called before each call, without a lock.
  void set_before_call(std::function<void(Function)> before) {
    std::lock_guard lock(mutex_);
    before_call_ = std::make_shared<const std::function<void(Function)>>(std::move(before));
  }

  bool is_peer_possible = true;
  bool loads_eagerly = false;

 private:
  struct Stream {
    bool is_held = false;
    std::uint64_t submitted = 0, passed = 0;
    std::map<CUstream, std::uint64_t> after{};                       // what it has waited for of all others
    std::vector<std::pair<std::uint32_t*, std::uint32_t>> writes{};  // that are still to be made
  };
  struct Event {
    CUstream stream = nullptr;
    std::uint64_t count = 0;
    std::map<CUstream, std::uint64_t> after{};
  };
  struct Refused {
    Function function;
    CUresult answer;
    std::size_t from, to;
  };

  static FakeDriver*& current() {
    static FakeDriver* driver = nullptr;
    return driver;
  }
  static std::size_t index(Function function) { return static_cast<std::size_t>(function); }

  template <Function function, class Pointer>
  struct Entry;
  template <Function function, class... Arguments>
  CUresult answer(Arguments... arguments);
  template <Function function, class Given>
  CUresult perform(const Given& given);

  template <class Handle>
  void make(Handle* handle, Function maker);
  std::uint64_t make_address(std::uint64_t size_bytes, Function maker);
  void* make_host(std::uint64_t size_bytes);
  template <class Handle>
  void end(Handle handle, const char* function);
  template <class Handle>
  void require_alive(Handle handle, const char* function);
  CUresult use_stream(CUstream stream, const char* function);
  std::uint64_t advance(CUstream stream);
  CUresult give_work(CUstream stream, Function function);

  static constexpr std::uint64_t first_handle = 0x1000;
  mutable std::mutex mutex_;
  std::shared_ptr<const std::function<void(Function)>> before_call_;
  std::array<std::size_t, function_count> made_{}, counts_{};  // calls ever; since the last `forget_calls`
  std::vector<Call> calls_;
  std::vector<Work> work_;
  std::vector<Refused> refusals_;
  std::size_t refusable_calls_ = 0, refused_at_ = 0;
  CUresult refused_with_ = CUDA_SUCCESS;
  std::string refused_function_;
  std::map<std::uint64_t, Function> alive_;
  std::map<std::uint64_t, std::unique_ptr<std::uint64_t[]>> host_;
  std::map<CUstream, Stream> streams_;
  std::map<CUevent, Event> events_;
  std::map<CUstream, CUresult> broken_;
  std::set<CUstream> captured_;
  std::set<std::pair<CUstream, CUstream>> waits_;
  std::vector<std::string> misuses_;
  std::map<void*, std::map<CUgraphNode, std::uint64_t>> filled_;  // by a graph's or an executable's nodes
  std::uint64_t last_handle_ = first_handle, last_address_ = 1ull << 40;
  static inline thread_local CUcontext context_ = nullptr;
};

}  // namespace aiocuda::driver::tests
