// See segment.hpp.
#include "segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "numbers.hpp"

namespace aiocuda::emulator::nccl {
namespace {

// A container often has 64 MiB of shared memory for all. Pages that nobody touches cost nothing.
constexpr std::size_t most_bytes = 16u << 20;

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// A power of two, so that it holds whole numbers of every type.
std::size_t slot_size(std::size_t share, std::size_t most) {
  return std::max<std::size_t>(std::bit_floor(std::min(share, most)), 1024);
}

struct flock lock_of(int rank, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

const char* name_of(Kind kind) {
  constexpr const char* names[] = {"AllReduce", "Broadcast", "Reduce",  "AllGather",    "ReduceScatter",
                                   "AlltoAll",  "Gather",    "Scatter", "Send and Recv"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace

std::string Description::text() const {
  std::string text = name_of(kind);
  text += " of " + std::to_string(count) + " " + nccl::name_of(type);
  const bool reduces = kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  const bool has_root =
      kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter;
  if (reduces) text += std::string(", ") + nccl::name_of(op);
  if (has_root) text += ", root " + std::to_string(root);
  return text + " (call " + std::to_string(sequence) + ")";
}

struct Segment::Head {
  std::atomic<std::int32_t> ranks;
  std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> waiting;  // some may have died: then the bell is rung in vain
};

Segment::Segment(const std::string& name, int ranks, int rank) : name_(name), ranks_(ranks), rank_(rank) {
  const auto count = static_cast<std::size_t>(ranks);
  slot_bytes_ = slot_size(most_bytes / 4 / count, 256u << 10);
  channel_slot_bytes_ = slot_size(most_bytes / 4 / (count * count), 64u << 10);
  parts_at_ = aligned(sizeof(Head));
  channels_at_ = parts_at_ + count * sizeof(RankPart);
  slots_at_ = channels_at_ + count * count * sizeof(Channel);
  channel_slots_at_ = slots_at_ + 2 * count * slot_bytes_;
  bytes_ = channel_slots_at_ + 2 * count * count * channel_slot_bytes_;

  file_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file_ < 0) throw Refused{ncclSystemError, "shm_open(" + name_ + "): " + std::strerror(errno)};
  struct stat found{};
  // The first one gives it its size; all who agree on the number of ranks give it the same.
  const bool has_size =
      fstat(file_, &found) == 0 && (found.st_size == 0 || found.st_size == static_cast<off_t>(bytes_));
  void* memory = MAP_FAILED;
  if (has_size && ftruncate(file_, static_cast<off_t>(bytes_)) == 0) {
    memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  if (memory == MAP_FAILED) {
    const std::string why = has_size ? std::strerror(errno) : "another rank joined it with another number of ranks";
    close(file_);
    throw Refused{has_size ? ncclSystemError : ncclInvalidArgument,
                  "joining a communicator of " + std::to_string(ranks) + " ranks: " + why};
  }
  memory_ = static_cast<std::byte*>(memory);
  struct flock lock = lock_of(rank, F_WRLCK);
  std::int32_t nobody = 0;
  const bool agrees = head().ranks.compare_exchange_strong(nobody, ranks) || nobody == ranks;
  const bool is_free = fcntl(file_, F_OFD_SETLK, &lock) == 0 && own().state.load() == RankState::absent;
  if (!agrees || !is_free) {
    munmap(memory_, bytes_);
    close(file_);
    if (!agrees) {
      throw Refused{ncclInvalidArgument, "another rank joined the communicator as one of " + std::to_string(nobody) +
                                             " ranks, this one as one of " + std::to_string(ranks)};
    }
    throw Refused{ncclInvalidUsage, "rank " + std::to_string(rank) + " joined the communicator twice"};
  }
  own().process = getpid();
  own().state.store(RankState::here);
  ring();
}

Segment::~Segment() {
  RankState here = RankState::here;
  own().state.compare_exchange_strong(here, RankState::left);
  ring();
  munmap(memory_, bytes_);
  close(file_);  // which unlocks it
}

Segment::Head& Segment::head() const noexcept { return *reinterpret_cast<Head*>(memory_); }

RankPart& Segment::part(int rank) const noexcept { return reinterpret_cast<RankPart*>(memory_ + parts_at_)[rank]; }

Channel& Segment::channel(int from, int to) const noexcept {
  return reinterpret_cast<Channel*>(memory_ + channels_at_)[from * ranks_ + to];
}

std::byte* Segment::slot(int rank, std::uint64_t piece) const noexcept {
  return memory_ + slots_at_ + (static_cast<std::size_t>(rank) * 2 + piece % 2) * slot_bytes_;
}

std::byte* Segment::channel_slot(int from, int to, std::uint64_t piece) const noexcept {
  const std::size_t pair =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to);
  return memory_ + channel_slots_at_ + (pair * 2 + piece % 2) * channel_slot_bytes_;
}

void Segment::remove_name() noexcept { shm_unlink(name_.c_str()); }

bool Segment::is_alive(int rank) const noexcept {
  if (rank == rank_) return true;
  struct flock lock = lock_of(rank, F_WRLCK);
  return fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::uint32_t Segment::bell() const noexcept { return head().bell.load(); }

void Segment::ring() const noexcept {
  head().bell.fetch_add(1);
  if (head().waiting.load() > 0) syscall(SYS_futex, &head().bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Segment::wait(std::uint32_t heard, std::chrono::milliseconds at_most) const noexcept {
  const timespec patience{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  head().waiting.fetch_add(1);
  syscall(SYS_futex, &head().bell, FUTEX_WAIT, heard, &patience, nullptr, 0);
  head().waiting.fetch_sub(1);
}

}  // namespace aiocuda::emulator::nccl
