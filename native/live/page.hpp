// A page of memory by which other processes ask this one how things stand, and which it answers in: a file without a
// name, which ends with the process. Knows neither Python nor CUDA.
//
// Always true: this process reads nothing of the page but the bell, so nobody who writes to it can mislead it. Nobody
// can make the file smaller, so to touch it ends neither process. A forked process has no part of the page. Whoever
// reads a text sees all of it, or that it is being written.
#pragma once
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>
#include <tuple>

namespace aiocuda::live {

// Waits until a word of shared memory is another one, or for no reason.
inline void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
}
// Raises a word, and wakes all who wait for that, in whichever process. Returns what it is now.
inline std::uint32_t ring(std::atomic<std::uint32_t>& word) {
  const std::uint32_t now = word.fetch_add(1) + 1;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  return now;
}

class Page {
 public:
  static constexpr std::uint32_t layout = 1;  // other numbers lie elsewhere
  static constexpr std::size_t size_bytes = 1 << 16, text_at = 4096, most_text_bytes = size_bytes - text_at;
  static constexpr const char* file_name = "aiocuda-live";
  using Counts = std::array<std::uint64_t, 6>;

  // Of a process that tells other processes apart by `version`. Throws std::system_error.
  explicit Page(std::string_view version) : fd_(make_file()) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    if (fchmod(fd_, S_IRUSR | S_IWUSR) != 0 || ftruncate(fd_, size_bytes) != 0 ||
        fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      fail("making a file in memory");
    void* const mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    head_ = new (mapped) Head{};
    madvise(mapped, size_bytes, MADV_DONTFORK);
    owner_ = getpid();
    head_->process = static_cast<std::uint32_t>(getpid());
    head_->layout = layout;
    version.copy(head_->version.data(), head_->version.size() - 1);
    std::memcpy(head_->magic.data(), "aiocuda", 8);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() {
    if (getpid() == owner_) munmap(head_, size_bytes);  // in a forked process other memory may lie there
    ::close(fd_);
  }

  // Returns when somebody has rung since the last time.
  void await_ring() {
    std::uint32_t rung = head_->bell.load();
    while (rung == heard_) {
      wait_while(head_->bell, heard_);
      rung = head_->bell.load();
    }
    heard_ = rung;
  }
  // Writes the counts, which are known without waiting for anybody.
  void note_heard(const Counts& counts) {
    for (std::size_t i = 0; i < counts.size(); ++i) head_->counts[i].store(counts[i], std::memory_order_relaxed);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    head_->heard_ns.store(static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()));
    head_->heard.store(heard_);
  }
  // All that is to be said, to those who had rung when it was last heard. False: it is too long.
  bool answer(std::string_view text) {
    if (text.size() > most_text_bytes) return false;
    head_->written.fetch_add(1);  // odd: it is being written
    char* const to = reinterpret_cast<char*>(head_) + text_at;
    for (std::size_t i = 0; i < text.size(); ++i)  // none of it is seen before that
      std::atomic_ref(to[i]).store(text[i], std::memory_order_release);
    head_->text_bytes.store(static_cast<std::uint32_t>(text.size()));
    head_->answered.store(heard_);
    head_->written.fetch_add(1);
    return true;
  }

 private:
  // As `aiocuda._live.page` reads it.
  struct Head {
    std::array<char, 8> magic{};
    std::uint32_t layout = 0, process = 0;
    std::array<char, 32> version{};
    std::atomic<std::uint32_t> bell{0}, heard{0}, answered{0}, written{0}, text_bytes{0}, unused{0};
    std::atomic<std::uint64_t> heard_ns{0};
    std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Counts>> counts{};
  };
  static_assert(sizeof(Head) == 8 + 8 + 32 + 24 + 8 + sizeof(Counts) && sizeof(Head) <= text_at);

  // A newer system may ask that each file in memory forbids its execution. Older systems do not know the flag.
  static int make_file() {
    const int file = memfd_create(file_name, MFD_CLOEXEC | MFD_ALLOW_SEALING | no_execution);
    return file >= 0 || errno != EINVAL ? file : memfd_create(file_name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  static constexpr unsigned no_execution = 0x8;  // MFD_NOEXEC_SEAL, which older headers lack

  [[noreturn]] void fail(const char* doing) {
    const int error = errno;
    ::close(fd_);
    throw std::system_error(error, std::generic_category(), doing);
  }

  const int fd_;
  pid_t owner_ = 0;
  Head* head_ = nullptr;
  std::uint32_t heard_ = 0;  // what the page says of it, anybody may have written
};

}  // namespace aiocuda::live
