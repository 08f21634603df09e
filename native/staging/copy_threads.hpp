// Threads that carry bytes between pageable memory, or files, and page-locked rings, while a device copies between the
// rings and its own memory. The code knows neither CUDA nor Python: device and threads meet in three numbers in
// page-locked memory.
//
// A *ring* is page-locked memory, three words, and chunks with the numbers 1, 2, 3 and so on, in the order in which
// they were handed to a stream. The device, in its stream, and the threads do this for chunk n:
//
// clang-format off
//   to the device:  threads: fill n's part of the ring, write granted = n
//                   stream:  wait granted >= n, copy, write passed = n
//   to the host:    threads: see n's part free, write granted = n
//                   stream:  wait granted >= n, copy, write passed = n
//                   threads: see passed >= n, empty the part, write finished = n
//                   stream:  after its last chunk, wait finished >= n
//   in place:       the same without ring and grant, where the array is page-locked itself:
//                   stream:  write passed = n, wait finished >= n
// clang-format on
//
// A part of the ring is free for n when the chunks that had its bytes before are finished. The words only grow, in the
// order of the chunks. The threads write `granted` and `finished`; the device writes `passed`.
//
// Why nothing waits for ever: everything waits only for work that was handed to the driver before it. A stream waits
// for the threads. The threads wait for chunks of lower numbers in the ring, or for transfers that were handed over
// before. All of that is in front of the stream's wait in any queue of the driver's, shared or not. So the first thing
// that has not passed can always go on. This needs three things. (1) Chunks have their numbers in the order in which
// the driver gets their calls. (2) A stream that takes a ring over waits for what others left there. (3) Threads call
// no driver, take no GIL, and hold no lock while they copy. A full queue of the driver's may hold up the submitting
// thread; these threads then empty the queue.
//
// A ring whose device was lost is abandoned: its words jump ahead, its transfers end, and it drops the sources.
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

#include "../rhythm.hpp"
#include "../thread_name.hpp"
#include "host_end.hpp"

namespace aiocuda::staging {

enum class Way : std::uint8_t {
  fill,   // before the device: host to ring
  drain,  // after it: ring to host
  store   // after it: host to page-locked memory, in place
};

// A copy of one array, as many chunks as it needs.
class Transfer {
 public:
  Transfer(HostEnd end, Way which) : host(std::move(end)), way(which) {}
  // Is nobody going to touch the host memory any more?
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }

  const HostEnd host;
  const Way way;

 private:
  friend class CopyThreads;
  std::vector<std::shared_ptr<Transfer>> before_;  // that write host memory which this one reads
  std::size_t open_chunks_ = 0;
  std::function<bool()> is_lost_;
  std::atomic<bool> ended_{false};
};
using TransferRef = std::shared_ptr<Transfer>;

// The words of a ring: each written by one side, on a cache line of its own.
struct Words {
  static constexpr std::size_t stride = 64 / sizeof(std::uint32_t);
  std::uint32_t* first = nullptr;
  std::uint32_t* granted() const { return first; }
  std::uint32_t* passed() const { return first + stride; }
  std::uint32_t* finished() const { return first + 2 * stride; }
};

// Numbers wrap: a number is reached if it is less than half of them behind.
inline bool has_reached(std::uint32_t value, std::uint32_t number) {
  return static_cast<std::int32_t>(value - number) >= 0;
}
inline std::uint32_t read_word(const std::uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void write_word(std::uint32_t* word, std::uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

class Ring {
 public:
  Ring(std::span<std::byte> bytes, Words words) : bytes_(bytes), words_(words) {}
  // Of the lender's thread alone:
  std::uint64_t size_bytes() const { return bytes_.size(); }
  const Words& words() const { return words_; }
  std::uint32_t last_number() const { return issued_; }

 private:
  friend class CopyThreads;
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

  std::span<std::byte> bytes_;
  Words words_;
  std::uint32_t issued_ = 0, granted_ = 0, finished_ = 0;
  std::uint64_t head_ = 0;    // where the next chunk begins
  std::deque<Chunk> chunks_;  // that are not finished
  bool is_lost_ = false;
};

class CopyThreads {
 public:
  using Clock = std::chrono::steady_clock;
  // One thread copies so much at a time. It takes some 60 us: small enough to share a chunk out, large enough to be
  // worth a lock.
  static constexpr std::uint64_t piece_bytes = 512 << 10;

  explicit CopyThreads(std::size_t most_threads) : most_threads_(std::max<std::size_t>(most_threads, 1)) {}
  CopyThreads(const CopyThreads&) = delete;
  CopyThreads& operator=(const CopyThreads&) = delete;
  ~CopyThreads() {
    stop_within({});
    for (std::thread& thread : threads_) thread.join();
  }

  Ring* add_ring(std::span<std::byte> bytes, Words words) {
    const auto lock = hold();
    rings_.push_back(std::make_unique<Ring>(bytes, words));
    return rings_.back().get();
  }
  // Gives an idle ring other memory.
  void replace_memory(Ring& ring, std::span<std::byte> bytes) {
    const auto lock = hold();
    ring.bytes_ = bytes;
    ring.head_ = 0;
  }

  // A chunk as the driver gets it: the bytes of a transfer from `begin` on, and their place in the ring.
  struct Part {
    std::uint32_t number;
    std::byte* packed;
    std::uint64_t begin, size_bytes;
  };
  struct Handed {
    TransferRef transfer;
    std::vector<Part> parts;
  };
  // Takes on a transfer, in chunks of `chunk_bytes` and no larger than the ring; or as a single one, `in_place`. Calls
  // no thread.
  Handed hand_over(Ring& ring, HostEnd host, Way way, std::uint64_t chunk_bytes, std::byte* in_place = nullptr) {
    Handed handed{std::make_shared<Transfer>(std::move(host), way), {}};
    Transfer& transfer = *handed.transfer;
    // A file of no bytes is opened, too: it has one part.
    const std::uint64_t size = transfer.host.size_bytes(), step = in_place && size ? size : chunk_bytes;
    handed.parts.reserve(size / step + 1);
    const auto lock = hold();
    if (!ring.is_lost_) advance(ring);
    if (way == Way::fill)  // the streams order what comes after the device
      for (const TransferRef& each : transfers_)
        if (each->way == Way::drain && each->host.meets(transfer.host)) transfer.before_.push_back(each);
    transfers_.push_back(handed.transfer);
    std::uint64_t begin = 0;
    do {
      handed.parts.push_back(add_chunk(ring, handed.transfer, begin, std::min(step, size - begin), in_place));
      begin += step;
    } while (begin < size);
    if (ring.is_lost_)
      give_up(ring);
    else
      advance(ring);  // grants what is free, without a thread
    return handed;
  }
  // Has threads carry the rest of a transfer. Now and then they ask `is_lost` whether the device is gone.
  void call(Transfer& transfer, std::function<bool()> is_lost) {
    std::condition_variable* who;
    {
      const auto lock = hold();
      if (transfer.has_ended()) return;
      transfer.is_lost_ = std::move(is_lost);
      // Files have as many, and one is left for memory: a disk may be slow.
      const std::size_t wanted =
          transfer.host.file()
              ? most_threads_ + 1
              : std::min<std::uint64_t>(most_threads_, (transfer.host.size_bytes() + piece_bytes - 1) / piece_bytes);
      while (threads_.size() < wanted && !is_stopped_) threads_.emplace_back([this] { run(); });
      last_event_ = Clock::now();
      who = is_spinning_ ? nullptr : has_lookout_ ? &lookout_woken_ : &woken_;
    }
    if (who) who->notify_one();
  }
  // Carries a chunk of the ring on this thread, if its part of the ring is free and no thread has it. For a short one
  // that is quicker than waking a thread.
  bool carry_now(Ring& ring, std::uint32_t number) {
    auto lock = hold();
    const auto chunk = std::find_if(ring.chunks_.begin(), ring.chunks_.end(),
                                    [number](const Ring::Chunk& each) { return each.number == number; });
    if (chunk == ring.chunks_.end() || ring.is_lost_ || chunk->taken || !is_due(ring, *chunk)) return false;
    chunk->taken = chunk->pieces;
    carry({&ring, &*chunk, 0, chunk->size_bytes, chunk->pieces}, lock);
    advance(ring);
    return true;
  }
  // The driver refused a call, so the device will not do the ring's chunks from this number on. They pass when their
  // turn comes.
  void withdraw(Ring& ring, std::uint32_t first) {
    {
      const auto lock = hold();
      for (Ring::Chunk& chunk : ring.chunks_)
        if (has_reached(chunk.number, first)) chunk.is_withdrawn = true;
    }
    wake_all();
  }
  // Ends all that a ring carries: its device is gone.
  void abandon(Ring& ring) {
    {
      const auto lock = hold();
      abandon_locked(ring);
    }
    wake_all();
  }

  bool is_idle(Ring& ring) { return chunk_count(ring) == 0; }
  bool is_lost(const Ring& ring) const {
    const auto lock = hold();
    return ring.is_lost_;
  }
  std::size_t chunk_count(Ring& ring) {
    const auto lock = hold();
    if (!ring.is_lost_) advance(ring);
    return ring.chunks_.size();
  }
  // Is some of this memory still to be written?
  bool is_being_written(const HostEnd& host) const {
    const auto lock = hold();
    return std::any_of(transfers_.begin(), transfers_.end(),
                       [&](const TransferRef& each) { return each->way == Way::drain && each->host.meets(host); });
  }
  std::size_t thread_count() const {
    const auto lock = hold();
    return threads_.size();
  }

  // Lets all streams pass that wait for the threads, and ends the threads. The rest is not carried. False: a thread is
  // still at a piece when the time is up, such as in a slow file. Then everything here must stay for ever.
  bool stop_within(std::chrono::milliseconds time) {
    {
      const auto lock = hold();
      if (!std::exchange(is_stopped_, true))
        for (const auto& ring : rings_) abandon_locked(*ring);
    }
    wake_all();
    std::unique_lock lock(mutex_);
    return last_ended_.wait_for(lock, time, [this] { return ended_threads_ == threads_.size(); });
  }

 private:
  // How often it asks whether the device is gone.
  static constexpr std::chrono::milliseconds ask_interval{20};

  struct Piece {
    Ring* ring = nullptr;
    Ring::Chunk* chunk = nullptr;
    std::uint64_t begin = 0, end = 0;  // of the chunk's bytes
    std::uint32_t count = 1;           // of pieces that it is
  };

  // Every holder keeps it for less than a microsecond. Sleeping for it takes a hundred on processors that idle deeply,
  // as virtual ones do.
  std::unique_lock<std::mutex> hold() const {
    std::unique_lock lock(mutex_, std::defer_lock);
    take_soon(lock);
    return lock;
  }
  static void take_soon(std::unique_lock<std::mutex>& lock) {
    for (int tries = 0; tries < 50; ++tries) {
      if (lock.try_lock()) return;
      std::this_thread::yield();
    }
    lock.lock();
  }

  Part add_chunk(Ring& ring, const TransferRef& transfer, std::uint64_t begin, std::uint64_t size_bytes,
                 std::byte* in_place) {
    std::byte* packed = in_place;
    std::uint32_t after = ring.finished_;
    if (!in_place) {
      if (ring.head_ + size_bytes > ring.bytes_.size()) ring.head_ = 0;
      packed = ring.bytes_.data() + ring.head_;
      ring.head_ += size_bytes;
      for (const Ring::Chunk& chunk : ring.chunks_)
        if (chunk.packed < packed + size_bytes && packed < chunk.packed + chunk.size_bytes) after = chunk.number;
    }
    const auto pieces =
        static_cast<std::uint32_t>(std::max<std::uint64_t>((size_bytes + piece_bytes - 1) / piece_bytes, 1));
    ring.chunks_.push_back({transfer, ++ring.issued_, after, packed, begin, size_bytes, pieces});
    ++transfer->open_chunks_;
    ++open_chunks_;
    return {ring.issued_, packed, begin, size_bytes};
  }

  void run() {
    name_this_thread("aiocuda copies");
    std::unique_lock lock(mutex_);
    while (!is_stopped_) {
      advance();
      if (const Piece piece = take(); piece.chunk) {
        // A thread that is woken wakes others while there is more to do; and one of them must look out.
        for (int others = has_piece() ? 2 : has_lookout_ ? 0 : 1; others > 0; --others) woken_.notify_one();
        carry(piece, lock);
      } else if (has_lookout_ || !is_something_likely()) {
        woken_.wait(lock);
      } else {
        has_lookout_ = true;
        look_out(lock);
        has_lookout_ = false;
      }
    }
    ++ended_threads_;
    last_ended_.notify_all();  // with the lock held: who waits may end all this next
  }
  // Copies come one behind the other, so it looks on for a while when all are done.
  bool is_something_likely() const { return open_chunks_ || Clock::now() - last_event_ < Rhythm::spin_time; }
  void wake_all() {
    woken_.notify_all();
    lookout_woken_.notify_all();
  }

  void carry(const Piece& piece, std::unique_lock<std::mutex>& lock) {
    const Transfer& transfer = *piece.chunk->transfer;
    std::byte* packed = piece.chunk->packed + piece.begin;
    const std::uint64_t begin = piece.chunk->begin + piece.begin, end = piece.chunk->begin + piece.end;
    const std::size_t in_file = transfer.host.file() ? 1 : 0;
    threads_at_files_ += in_file;
    lock.unlock();
    if (transfer.way == Way::drain) {
      transfer.host.unpack(begin, end, packed);
    } else {
      transfer.host.pack(begin, end, packed);
    }
    take_soon(lock);
    threads_at_files_ -= in_file;
    piece.chunk->done += piece.count;
    if (piece.ring->is_lost_) drop_carried(*piece.ring);
  }

  // Returns when there may be something to do.
  void look_out(std::unique_lock<std::mutex>& lock) {
    auto asked = Clock::now();
    while (!is_stopped_ && is_something_likely() && !has_piece()) {
      const auto now = looked_ = Clock::now();
      if (now - asked >= ask_interval) {
        asked = now;
        ask();
      }
      const auto pause = rhythm_.pause(now - last_event_);
      if (pause == Clock::duration::zero()) {
        is_spinning_ = true;
        lock.unlock();
        std::this_thread::yield();
        take_soon(lock);
        is_spinning_ = false;
      } else {
        lookout_woken_.wait_for(lock, pause);
      }
      advance();
    }
  }

  void ask() {
    for (const auto& ring : rings_) {
      const bool is_lost = std::any_of(ring->chunks_.begin(), ring->chunks_.end(), [](const Ring::Chunk& chunk) {
        return chunk.transfer->is_lost_ && chunk.transfer->is_lost_();
      });
      if (is_lost) abandon_locked(*ring);
    }
  }

  bool is_free(const Ring& ring, const Ring::Chunk& chunk) const {
    return has_reached(ring.finished_, chunk.after) &&
           std::all_of(chunk.transfer->before_.begin(), chunk.transfer->before_.end(),
                       [](const TransferRef& each) { return each->has_ended(); });
  }

  // May threads carry it now?
  bool is_due(const Ring& ring, const Ring::Chunk& chunk) const {
    if (chunk.taken == chunk.pieces || chunk.is_withdrawn) return false;
    if (chunk.transfer->host.file() && threads_at_files_ >= std::max<std::size_t>(threads_.size(), 2) - 1) return false;
    return chunk.transfer->way == Way::fill ? is_free(ring, chunk)
                                            : has_reached(read_word(ring.words_.passed()), chunk.number);
  }

  template <class F>
  bool each_due(F&& f) const {
    for (const auto& ring : rings_) {
      if (ring->is_lost_) continue;
      for (Ring::Chunk& chunk : ring->chunks_)
        if (is_due(*ring, chunk) && f(*ring, chunk)) return true;
    }
    return false;
  }
  bool has_piece() const {
    return each_due([](Ring&, Ring::Chunk&) { return true; });
  }
  Piece take() {
    Piece piece;
    each_due([&](Ring& ring, Ring::Chunk& chunk) {
      const std::uint64_t begin = chunk.taken++ * piece_bytes;
      piece = {&ring, &chunk, begin, std::min(begin + piece_bytes, chunk.size_bytes), 1};
      return true;
    });
    return piece;
  }

  void advance() {
    for (const auto& ring : rings_)
      if (!ring->is_lost_ && !ring->chunks_.empty()) advance(*ring);
  }

  // Moves `granted` and `finished` on as far as the chunks' order allows.
  void advance(Ring& ring) {
    for (Ring::Chunk& chunk : ring.chunks_) {
      if (has_reached(ring.granted_, chunk.number)) continue;
      const bool is_ready = chunk.is_withdrawn                 ? !chunk.is_being_carried()
                            : chunk.transfer->way == Way::fill ? chunk.is_carried()
                                                               : is_free(ring, chunk);
      if (!is_ready) break;
      ring.granted_ = chunk.number;
      write_word(ring.words_.granted(), chunk.number);
    }
    while (!ring.chunks_.empty()) {
      Ring::Chunk& chunk = ring.chunks_.front();
      if (!has_reached(ring.granted_, chunk.number)) return;
      if (chunk.is_withdrawn && !has_reached(read_word(ring.words_.passed()), chunk.number))
        write_word(ring.words_.passed(), chunk.number);
      if (!has_reached(read_word(ring.words_.passed()), chunk.number) || (!chunk.is_carried() && !chunk.is_withdrawn))
        return;
      ring.finished_ = chunk.number;
      finish(chunk);  // before the stream goes on: a waiter for it finds the transfer ended
      write_word(ring.words_.finished(), chunk.number);
      ring.chunks_.pop_front();
    }
  }

  void finish(Ring::Chunk& chunk) {
    Transfer& transfer = *chunk.transfer;
    --open_chunks_;
    const auto now = Clock::now();
    rhythm_.note((looked_ > last_event_ ? looked_ : now) - last_event_);
    last_event_ = now;
    if (--transfer.open_chunks_) return;
    transfer.before_.clear();
    transfer.is_lost_ = nullptr;
    transfer.ended_.store(true, std::memory_order_release);
    std::erase(transfers_, chunk.transfer);  // a file that was not read to its end is closed with it
  }

  void abandon_locked(Ring& ring) {
    if (!std::exchange(ring.is_lost_, true)) give_up(ring);
  }
  void give_up(Ring& ring) {
    ring.granted_ = ring.finished_ = ring.issued_;
    write_word(ring.words_.granted(), ring.issued_);
    write_word(ring.words_.finished(), ring.issued_);
    drop_carried(ring);
  }
  // Of an abandoned ring: a chunk that a thread is carrying stays until the thread is done.
  void drop_carried(Ring& ring) {
    for (Ring::Chunk& chunk : ring.chunks_) {
      if (!chunk.is_being_carried() && std::exchange(chunk.pieces, 0)) finish(chunk);
    }
    while (!ring.chunks_.empty() && !ring.chunks_.front().pieces) ring.chunks_.pop_front();
  }

  const std::size_t most_threads_;
  mutable std::mutex mutex_;
  std::condition_variable woken_, lookout_woken_, last_ended_;
  std::vector<std::thread> threads_;
  std::vector<std::unique_ptr<Ring>> rings_;
  std::vector<TransferRef> transfers_;  // that have not ended
  std::size_t open_chunks_ = 0, threads_at_files_ = 0, ended_threads_ = 0;
  Rhythm rhythm_;
  Clock::time_point last_event_{}, looked_{};  // something was handed over, or finished; a look found nothing
  bool has_lookout_ = false, is_spinning_ = false, is_stopped_ = false;
};

}  // namespace aiocuda::staging
