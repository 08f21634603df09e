// Finds operations that touch the same bytes without an order between them (AIOCUDA_EMULATOR_CHECK=races).
// It is told what is submitted, waited for and observed, and which bytes an operation touched, and decides by
// vector clocks alone: two operations race when no chain of such orders leads from one to the other, whether
// they met in time or not. It calls nobody, so any lock of the driver may be held when it is called.
//
// The order it knows: a stream's own; waits of streams (events, default streams) for points of others; values
// that streams write and wait for; and the host's: what is submitted after anybody has observed a point is
// ordered after it. One host for all threads, since how threads tell one another cannot be seen.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "checking/access.hpp"
#include "checking/history.hpp"
#include "checking/operation.hpp"
#include "checking/reports.hpp"

namespace aiocuda::emulator::checking {

// How an operation orders others, besides by its place in its stream.
struct Ordering {
  bool tells_host = false;      // from its beginning on, the host may know that it is reached
  std::uintptr_t releases = 0;  // the address of a value that it writes for others to wait for
  std::uintptr_t acquires = 0;  // the address of a value that it waits for
};

class Checker {
 public:
  // The line of a stream's operations.
  class Lane {
   public:
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // In the order of the stream's queue.
    Point submit(std::string text, std::vector<Point> after);
    // Around an operation, in the same order, before anybody can learn that it has ended.
    void begin(Operation& operation, const Ordering& ordering);
    void end(const Point& operation, const Ordering& ordering, const Accesses& accesses);
    // Instead of both, for what will never run.
    void drop(const Operation& operation);
    // For a node of a graph, in place of both submit and begin: it is behind all that its launch is behind, which has
    // begun, and behind other nodes.
    void begin_node(const Point& node, const Operation& launch, std::uint64_t step, const std::vector<Point>& after,
                    const Ordering& ordering);
    // Later work is behind all that has ended in this lane.
    void join_into(Operation& launch) const;

   private:
    friend class Checker;
    Lane(Checker& checker, std::shared_ptr<const StreamName> name, std::size_t number, std::uint64_t count)
        : checker_(checker), name_(std::move(name)), number_(number), count_(count) {}

    Checker& checker_;
    const std::shared_ptr<const StreamName> name_;
    const std::size_t number_;
    std::uint64_t count_;
    Clock clock_;                // of the last operation that ended
    std::deque<Point> pending_;  // submitted and not ended
  };

  // The kind of stream in words; its number is put before it.
  std::unique_ptr<Lane> open_lane(std::uintptr_t handle, const std::string& kind);

  // The same for nodes of a graph, one after the other. They count as operations of the stream in which the graph is
  // launched.
  std::unique_ptr<Lane> open_branch();

  // The host knows that the point has passed.
  void observe(const Point& point);

  // Memory that operations may touch from now on. The first `fresh_bytes` of it, which may be more than were asked
  // for, have no past: where they were used before, the driver has seen to it that those uses are over. Other memory
  // was freed in the order of the same stream.
  void allocated(std::uintptr_t address, std::size_t bytes, std::size_t fresh_bytes);
  // It was freed in a stream: the free is an operation like others, only the name is kept until it is used again.
  void freed_in_stream(std::uintptr_t address);
  // The host frees it, by the function named.
  void freed_by_host(std::uintptr_t address, std::size_t bytes, const std::string& text);

  // All reports, and forgets them, if the text is at most so long; answers the text's length either way.
  std::size_t take_reports(char* text, std::size_t capacity);
  std::size_t remembered_ranges();

 private:
  struct Allocation {
    std::size_t bytes;
    bool freed;
  };

  // The rest is under the mutex.
  std::shared_ptr<const Clock> host() const { return host_; }
  void observe_clock(const Clock& clock);
  static void join_ended(Operation& operation);
  std::unique_ptr<Lane> make_lane(std::shared_ptr<const StreamName> name);
  void close_lane(const Lane& lane);
  using Races = std::map<Sequence, Race>;  // of one operation with others, by their sequence
  void record(const std::shared_ptr<const Operation>& operation, const Accesses& accesses);
  void add_conflict(Races& found, const std::shared_ptr<const Operation>& operation, AccessKind kind,
                    const History::Conflict& conflict) const;
  std::string allocation_text(std::uintptr_t address) const;
  void prune_when_large();

  std::mutex mutex_;
  std::shared_ptr<const Clock> host_ = std::make_shared<Clock>();
  std::uint64_t last_sequence_ = 0;
  unsigned last_stream_ = 0;
  std::size_t lane_count_ = 0;
  std::set<Lane*> lanes_;
  std::unordered_map<std::size_t, std::uint64_t> unused_lanes_;  // and what their last operation's count was
  std::unordered_map<std::uintptr_t, Clock> releases_;
  std::map<std::uintptr_t, Allocation> allocations_;
  History history_;
  Reports reports_;
  std::size_t prune_at_ = least_prune_at;
  static constexpr std::size_t least_prune_at = 4096;
};

}  // namespace aiocuda::emulator::checking
