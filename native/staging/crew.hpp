// Threads that carry bytes between pageable memory and page-locked rings, while a device copies between the rings and its
// own memory. Knows neither CUDA nor Python: device and threads meet in three numbers in page-locked memory.
//
// A *lane* is a ring, its three words, and chunks with the numbers 1, 2, 3 and so on, in the order in which they were handed to
// a stream. What the device does for chunk n, in its stream, and what the threads do for it:
//
//   to the device:  threads fill n's part of the ring, write granted = n;   stream: wait granted >= n, copy, write passed = n
//   to the host:    threads see n's part free, write granted = n;           stream: wait granted >= n, copy, write passed = n;
//                   threads see passed >= n, empty the part, write finished = n;   stream, after its last chunk: wait finished >= n
//   in place:       the same without ring and grant, where the array is page-locked itself: write passed = n, wait finished >= n
//
// A part of the ring is free for n when the chunks that had its bytes before are finished. The words only grow, each by its
// chunks' order: `granted` and `finished` are written by the threads, `passed` by the device.
//
// Why nothing waits for ever: whatever waits for something waits for what was handed to the driver before it. A stream waits
// for the threads, and these for chunks of lower numbers in the lane, or for transfers that were handed over before; all
// of that stands in front of it in whatever queue of the driver's, shared or not. So the first thing that has not passed can
// always go on. It needs that (1) chunks get their numbers in the order in which the driver gets their calls, (2) a stream
// that takes a lane over waits for what others left there, and (3) threads call no driver, take no GIL, and hold no lock
// while they copy. Who submits may be held up by a full queue of the driver's: these threads then empty it.
//
// A lane whose device was lost is abandoned: its words jump ahead, its transfers end, the sources are let go of.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "layout.hpp"

namespace aiocuda::staging {

enum class Way : std::uint8_t {
  fill,   // before the device: host to ring
  drain,  // after it: ring to host
  store   // after it: host to page-locked memory, in place
};

// A copy of one array, as many chunks as it needs.
class Transfer {
 public:
  Transfer(HostLayout layout, Way which) : host(std::move(layout)), way(which) {}
  // Is nobody going to touch the host memory any more?
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }

  const HostLayout host;
  const Way way;

 private:
  friend class Crew;
  std::vector<std::shared_ptr<Transfer>> before_;  // that write the host memory which this reads
  std::uint32_t open_chunks_ = 0;
  bool is_sealed_ = false;  // all chunks are there
  std::function<bool()> is_lost_;
  std::atomic<bool> ended_{false};
};
using TransferRef = std::shared_ptr<Transfer>;

// The words of a lane: each written by one side, on a cache line of its own.
struct Words {
  static constexpr std::size_t stride = 64 / sizeof(std::uint32_t);
  std::uint32_t* first = nullptr;
  std::uint32_t* granted() const { return first; }
  std::uint32_t* passed() const { return first + stride; }
  std::uint32_t* finished() const { return first + 2 * stride; }
};

// Numbers wrap: reached is what is less than half of them behind.
inline bool has_reached(std::uint32_t value, std::uint32_t number) { return static_cast<std::int32_t>(value - number) >= 0; }
inline std::uint32_t read_word(const std::uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void write_word(std::uint32_t* word, std::uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

class Lane {
 public:
  Lane(std::span<std::byte> ring, Words words) : ring_(ring), words_(words) {}
  // Of the lender's thread alone:
  std::uint64_t ring_bytes() const { return ring_.size(); }
  const Words& words() const { return words_; }
  std::uint32_t last_number() const { return issued_; }

 private:
  friend class Crew;
  struct Chunk {
    TransferRef transfer;
    std::uint32_t number, after;  // `after`: the chunk that must be finished for its part of the ring to be free
    std::byte* packed;
    std::uint64_t begin, size_bytes;  // of the transfer's bytes
    std::uint32_t pieces, taken = 0, done = 0;
    bool is_withdrawn = false;

    bool is_carried() const { return done == pieces; }
    bool is_being_carried() const { return taken > done; }
  };

  std::span<std::byte> ring_;
  Words words_;
  std::uint32_t issued_ = 0, granted_ = 0, finished_ = 0;
  std::uint64_t head_ = 0;    // where the next chunk begins
  std::deque<Chunk> chunks_;  // that are not finished
  bool is_lost_ = false;
};

class Crew {
 public:
  using Clock = std::chrono::steady_clock;
  // What one thread copies at a time: some 60 us, small enough to share a chunk out, large enough to be worth a lock.
  static constexpr std::uint64_t piece_bytes = 512 << 10;

  explicit Crew(std::size_t most_threads) : most_threads_(std::max<std::size_t>(most_threads, 1)) {}
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew() { stop(); }

  Lane* add_lane(std::span<std::byte> ring, Words words) {
    std::lock_guard lock(mutex_);
    lanes_.push_back(std::make_unique<Lane>(ring, words));
    return lanes_.back().get();
  }
  // Gives an idle lane another ring.
  void replace_ring(Lane& lane, std::span<std::byte> ring) {
    std::lock_guard lock(mutex_);
    lane.ring_ = ring;
    lane.head_ = 0;
  }

  // A transfer whose chunks are to follow. `is_lost` is asked, now and then, whether the device is gone.
  TransferRef begin(HostLayout host, Way way, std::function<bool()> is_lost) {
    auto transfer = std::make_shared<Transfer>(std::move(host), way);
    transfer->is_lost_ = std::move(is_lost);
    std::lock_guard lock(mutex_);
    std::erase_if(transfers_, [](const TransferRef& each) { return each->has_ended(); });
    if (way == Way::fill)  // what comes after the device is ordered by the streams
      for (const TransferRef& each : transfers_)
        if (each->way == Way::drain && each->host.meets(transfer->host)) transfer->before_.push_back(each);
    transfers_.push_back(transfer);
    const std::size_t wanted = std::min<std::uint64_t>(most_threads_, (transfer->host.size_bytes() + piece_bytes - 1) / piece_bytes);
    while (threads_.size() < wanted && !is_stopped_) threads_.emplace_back([this] { run(); });
    return transfer;
  }

  struct Place {
    std::uint32_t number;
    std::byte* packed;
  };
  // The next chunk of a lane: the bytes of a transfer from `begin` on. At most as large as the ring; of any size where it
  // is `in_place`.
  Place add_chunk(Lane& lane, const TransferRef& transfer, std::uint64_t begin, std::uint64_t size_bytes, std::byte* in_place = nullptr) {
    Place place{};
    {
      std::lock_guard lock(mutex_);
      std::byte* packed = in_place;
      std::uint32_t after = lane.finished_;
      if (!in_place) {
        if (lane.head_ + size_bytes > lane.ring_.size()) lane.head_ = 0;
        packed = lane.ring_.data() + lane.head_;
        lane.head_ += size_bytes;
        for (const Lane::Chunk& chunk : lane.chunks_)
          if (chunk.packed < packed + size_bytes && packed < chunk.packed + chunk.size_bytes) after = chunk.number;
      }
      const auto pieces = static_cast<std::uint32_t>((size_bytes + piece_bytes - 1) / piece_bytes);
      place = {++lane.issued_, packed};
      lane.chunks_.push_back({transfer, place.number, after, packed, begin, size_bytes, pieces});
      ++transfer->open_chunks_;
      ++open_chunks_;
    }
    woken_.notify_one();
    return place;
  }
  // The device will not do the lane's last chunk: its copy was refused. The chunk passes when its turn comes.
  void withdraw(Lane& lane) {
    {
      std::lock_guard lock(mutex_);
      if (!lane.chunks_.empty() && lane.chunks_.back().number == lane.issued_) lane.chunks_.back().is_withdrawn = true;
    }
    woken_.notify_one();
  }
  // No chunks will follow.
  void seal(const TransferRef& transfer) {
    std::lock_guard lock(mutex_);
    transfer->is_sealed_ = true;
    end_if_done(*transfer);
  }
  // Ends all that a lane carries: its device is gone.
  void abandon(Lane& lane) {
    {
      std::lock_guard lock(mutex_);
      abandon_locked(lane);
    }
    woken_.notify_all();
  }

  bool is_idle(const Lane& lane) const {
    std::lock_guard lock(mutex_);
    return lane.chunks_.empty();
  }
  bool is_lost(const Lane& lane) const {
    std::lock_guard lock(mutex_);
    return lane.is_lost_;
  }
  std::size_t chunk_count(const Lane& lane) const {
    std::lock_guard lock(mutex_);
    return lane.chunks_.size();
  }
  // Is some of this memory still to be written?
  bool is_being_written(const HostLayout& host) const {
    std::lock_guard lock(mutex_);
    return std::any_of(transfers_.begin(), transfers_.end(),
                       [&](const TransferRef& each) { return each->way == Way::drain && !each->has_ended() && each->host.meets(host); });
  }
  std::size_t thread_count() const {
    std::lock_guard lock(mutex_);
    return threads_.size();
  }

  // Lets all streams pass that wait for the threads, and ends these. What was not carried is not.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(is_stopped_, true)) return;
      for (const auto& lane : lanes_) abandon_locked(*lane);
    }
    woken_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  // As the reactor does: it looks without a pause for so long, then sleeps a 32nd of the time that nothing came.
  static constexpr std::chrono::microseconds spin_time{50};
  static constexpr std::chrono::microseconds shortest_sleep{5}, longest_sleep{500};
  // How often it asks whether the device is gone.
  static constexpr std::chrono::milliseconds ask_interval{20};

  struct Piece {
    Lane* lane = nullptr;
    Lane::Chunk* chunk = nullptr;
    std::uint64_t begin = 0, end = 0;  // of the chunk's bytes
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_stopped_) {
      advance();
      if (const Piece piece = take(); piece.chunk) {
        woken_.notify_one();  // there may be more for others, and somebody is to look out
        carry(piece, lock);
      } else if (open_chunks_ == 0 || has_lookout_) {
        woken_.wait(lock);
      } else {
        has_lookout_ = true;
        look_out(lock);
        has_lookout_ = false;
      }
    }
  }

  void carry(const Piece& piece, std::unique_lock<std::mutex>& lock) {
    const Transfer& transfer = *piece.chunk->transfer;
    std::byte* packed = piece.chunk->packed + piece.begin;
    const std::uint64_t begin = piece.chunk->begin + piece.begin, end = piece.chunk->begin + piece.end;
    lock.unlock();
    if (transfer.way == Way::drain) {
      transfer.host.unpack(begin, end, packed);
    } else {
      transfer.host.pack(begin, end, packed);
    }
    lock.lock();
    ++piece.chunk->done;
    if (piece.lane->is_lost_) drop_carried(*piece.lane);
  }

  // Returns when there may be something to do.
  void look_out(std::unique_lock<std::mutex>& lock) {
    const auto since = Clock::now();
    auto asked = since;
    while (!is_stopped_ && open_chunks_ && !has_piece()) {
      const auto now = Clock::now();
      if (now - asked >= ask_interval) {
        asked = now;
        ask();
      }
      const auto quiet = now - since;
      if (quiet < spin_time) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      } else {
        woken_.wait_for(lock, std::clamp<Clock::duration>(quiet / 32, shortest_sleep, longest_sleep));
      }
      advance();
    }
  }

  void ask() {
    for (const auto& lane : lanes_) {
      const bool is_lost = std::any_of(lane->chunks_.begin(), lane->chunks_.end(),
                                       [](const Lane::Chunk& chunk) { return chunk.transfer->is_lost_ && chunk.transfer->is_lost_(); });
      if (is_lost) abandon_locked(*lane);
    }
  }

  bool is_free(const Lane& lane, const Lane::Chunk& chunk) const {
    return has_reached(lane.finished_, chunk.after) &&
           std::all_of(chunk.transfer->before_.begin(), chunk.transfer->before_.end(), [](const TransferRef& each) { return each->has_ended(); });
  }

  // May threads carry it now?
  bool is_due(const Lane& lane, const Lane::Chunk& chunk) const {
    if (chunk.taken == chunk.pieces || chunk.is_withdrawn) return false;
    return chunk.transfer->way == Way::fill ? is_free(lane, chunk) : has_reached(read_word(lane.words_.passed()), chunk.number);
  }

  template <class F>
  bool each_due(F&& f) const {
    for (const auto& lane : lanes_) {
      if (lane->is_lost_) continue;
      for (Lane::Chunk& chunk : lane->chunks_)
        if (is_due(*lane, chunk) && f(*lane, chunk)) return true;
    }
    return false;
  }
  bool has_piece() const {
    return each_due([](Lane&, Lane::Chunk&) { return true; });
  }
  Piece take() {
    Piece piece;
    each_due([&](Lane& lane, Lane::Chunk& chunk) {
      const std::uint64_t begin = chunk.taken++ * piece_bytes;
      piece = {&lane, &chunk, begin, std::min(begin + piece_bytes, chunk.size_bytes)};
      return true;
    });
    return piece;
  }

  void advance() {
    for (const auto& lane : lanes_)
      if (!lane->is_lost_ && !lane->chunks_.empty()) advance(*lane);
  }

  // Moves `granted` and `finished` on as far as the chunks' order allows.
  void advance(Lane& lane) {
    for (Lane::Chunk& chunk : lane.chunks_) {
      if (has_reached(lane.granted_, chunk.number)) continue;
      const bool is_ready = chunk.is_withdrawn ? !chunk.is_being_carried() : chunk.transfer->way == Way::fill ? chunk.is_carried() : is_free(lane, chunk);
      if (!is_ready) break;
      lane.granted_ = chunk.number;
      write_word(lane.words_.granted(), chunk.number);
    }
    while (!lane.chunks_.empty()) {
      Lane::Chunk& chunk = lane.chunks_.front();
      if (!has_reached(lane.granted_, chunk.number)) return;
      if (chunk.is_withdrawn && !has_reached(read_word(lane.words_.passed()), chunk.number)) write_word(lane.words_.passed(), chunk.number);
      if (!has_reached(read_word(lane.words_.passed()), chunk.number) || (!chunk.is_carried() && !chunk.is_withdrawn)) return;
      lane.finished_ = chunk.number;
      finish(chunk);  // before the stream goes on: who waits for that finds the transfer ended
      write_word(lane.words_.finished(), chunk.number);
      lane.chunks_.pop_front();
    }
  }

  void finish(Lane::Chunk& chunk) {
    --open_chunks_;
    --chunk.transfer->open_chunks_;
    end_if_done(*chunk.transfer);
  }
  void end_if_done(Transfer& transfer) {
    if (!transfer.is_sealed_ || transfer.open_chunks_) return;
    transfer.before_.clear();
    transfer.is_lost_ = nullptr;
    transfer.ended_.store(true, std::memory_order_release);
  }

  void abandon_locked(Lane& lane) {
    if (std::exchange(lane.is_lost_, true)) return;
    lane.granted_ = lane.finished_ = lane.issued_;
    write_word(lane.words_.granted(), lane.issued_);
    write_word(lane.words_.finished(), lane.issued_);
    drop_carried(lane);
  }
  // Of an abandoned lane: what a thread is carrying stays until it has done so.
  void drop_carried(Lane& lane) {
    for (Lane::Chunk& chunk : lane.chunks_) {
      if (!chunk.is_being_carried() && std::exchange(chunk.pieces, 0)) finish(chunk);
    }
    while (!lane.chunks_.empty() && !lane.chunks_.front().pieces) lane.chunks_.pop_front();
  }

  const std::size_t most_threads_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<std::thread> threads_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<TransferRef> transfers_;  // that may not have ended
  std::size_t open_chunks_ = 0;
  bool has_lookout_ = false, is_stopped_ = false;
};

}  // namespace aiocuda::staging
