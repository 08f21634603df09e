// A page of memory by which other processes ask this one how things stand, and which it answers in: a file without a
// name, which ends with the process. Knows neither Python nor CUDA.
//
// Always true: this process reads nothing of the page but the bell, so nobody who writes to it can mislead it. Nobody
// can make the file smaller, so to touch it ends neither process. A forked process has no part of the page. Whoever
// reads sees all that was written at one time, or that it is being written.
//
// Both sides of that are here: a sequence lock. `written` is odd while the rest is written. A reader that finds it
// even, and unchanged behind all that it has read, has read no part of something else.
// The writer stores with release between its two steps of `written`. The reader loads with acquire between its two
// looks at it. So a reader that has seen anything new looks once more behind that. It finds the odd number, or a later
// one. Fences would do the same with less, and ThreadSanitizer does not know them.
#pragma once
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
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

// Counts that are known without waiting for anybody.
using Counts = std::array<std::uint64_t, 6>;

// What lies where in the page.
struct Layout {
  static constexpr std::uint32_t number = 1;  // other numbers lie elsewhere
  static constexpr std::uint64_t page_magic =
      std::bit_cast<std::uint64_t>(std::array{'a', 'i', 'o', 'c', 'u', 'd', 'a', '\0'});

  std::atomic<std::uint64_t> magic;  // the last that is written of a new page
  std::atomic<std::uint32_t> layout, process;
  std::array<char, 32> version;
  std::atomic<std::uint32_t> bell, heard, answered, written, text_bytes, unused;
  std::atomic<std::uint64_t> heard_ns;
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Counts>> counts;
  std::array<char, 4096 - 128> room;
  std::array<char, (1 << 16) - 4096> text;
};
static_assert(sizeof(Layout) == 1 << 16 && offsetof(Layout, text) == 4096);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Page {
 public:
  static constexpr std::size_t size_bytes = sizeof(Layout), most_text_bytes = sizeof(Layout::text);
  static constexpr const char* file_name = "aiocuda-live";

  // Of a process that tells other processes apart by `version`. Throws std::system_error.
  explicit Page(std::string_view version) : fd_(make_file()) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    if (fchmod(fd_, S_IRUSR | S_IWUSR) != 0 || ftruncate(fd_, size_bytes) != 0 ||
        fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      fail("making a file in memory");
    void* const mapped = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) fail("mmap");
    page_ = new (mapped) Layout;  // a new file is zero
    madvise(mapped, size_bytes, MADV_DONTFORK);
    owner_ = getpid();
    page_->process = static_cast<std::uint32_t>(getpid());
    page_->layout = Layout::number;
    write(page_->version, version.substr(0, page_->version.size() - 1));
    page_->magic = Layout::page_magic;
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  ~Page() {
    if (getpid() == owner_) munmap(page_, size_bytes);  // in a forked process other memory may lie there
    ::close(fd_);
  }

  // Returns when somebody has rung since the last time.
  void await_ring() {
    std::uint32_t rung = page_->bell.load();
    while (rung == heard_) {
      wait_while(page_->bell, heard_);
      rung = page_->bell.load();
    }
    heard_ = rung;
  }
  // Writes the counts.
  void note_heard(const Counts& counts) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    begin_to_write();
    for (std::size_t i = 0; i < counts.size(); ++i) page_->counts[i].store(counts[i], std::memory_order_release);
    page_->heard_ns.store(static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()));
    page_->heard.store(heard_);
    end_writing();
  }
  // All that is to be said, to those who had rung when it was last heard. False: it is too long.
  bool answer(std::string_view text) {
    if (text.size() > most_text_bytes) return false;
    begin_to_write();
    write(page_->text, text);
    page_->text_bytes.store(static_cast<std::uint32_t>(text.size()));
    page_->answered.store(heard_);
    end_writing();
    return true;
  }

 private:
  void begin_to_write() { page_->written.fetch_add(1); }
  void end_writing() { page_->written.fetch_add(1); }
  static void write(std::span<char> to, std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) std::atomic_ref(to[i]).store(text[i], std::memory_order_release);
  }

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
  Layout* page_ = nullptr;
  std::uint32_t heard_ = 0;  // what the page says of it, anybody may have written
};

// The page of another process, as long as its memory is there. Whoever writes there may write anything: so this checks
// lengths, and believes nothing but numbers.
class PageReader {
 public:
  struct Owner {
    std::uint32_t layout, process;
    std::string version;
  };
  // What was written at one time.
  struct Told {
    std::uint32_t heard, answered;
    std::uint64_t heard_ns;
    Counts counts;
    std::string text;
  };

  // Throws std::invalid_argument.
  explicit PageReader(std::span<std::byte> memory) : page_(reinterpret_cast<Layout*>(memory.data())) {
    if (memory.size() < sizeof(Layout)) throw std::invalid_argument("memory is too small for a page");
  }

  // Nothing: it is no page, or not yet.
  std::optional<Owner> owner() const {
    if (page_->magic.load() != Layout::page_magic) return std::nullopt;
    return Owner{page_->layout.load(), page_->process.load(), read(page_->version)};
  }
  // Asks. The answer is there when the page has answered what this returns.
  std::uint32_t ring() const { return live::ring(page_->bell); }
  // Nothing: it is being written.
  std::optional<Told> told() const {
    const std::uint32_t before = page_->written.load();
    Told told{page_->heard.load(), page_->answered.load(), page_->heard_ns.load(), {}, {}};
    for (std::size_t i = 0; i < told.counts.size(); ++i) told.counts[i] = page_->counts[i].load();
    const std::size_t length = std::min<std::size_t>(page_->text_bytes.load(), page_->text.size());
    told.text = read(std::span(page_->text).first(length));
    if (before % 2 != 0 || page_->written.load() != before) return std::nullopt;
    return told;
  }

 private:
  static std::string read(std::span<char> from) {
    std::string found(from.size(), '\0');
    for (std::size_t i = 0; i < from.size(); ++i) found[i] = std::atomic_ref(from[i]).load(std::memory_order_acquire);
    return found;
  }

  Layout* page_;
};

}  // namespace aiocuda::live
