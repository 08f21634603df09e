// The page that another process reads: who rings is heard and answered, and nobody reads half a text.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "live/page.hpp"

using namespace aiocuda::live;

namespace {

// The page as another process has it: mapped once more.
struct Seen {
  std::array<char, 8> magic;
  std::uint32_t layout, process;
  std::array<char, 32> version;
  std::atomic<std::uint32_t> bell, heard, answered, written, text_bytes, unused;
  std::atomic<std::uint64_t> heard_ns;
  std::array<std::atomic<std::uint64_t>, 6> counts;
};

class Other {
 public:
  Other() {
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (std::filesystem::read_symlink(each.path(), error).string().starts_with("/memfd:aiocuda-live"))
        file_ = open(each.path().c_str(), O_RDWR | O_CLOEXEC);
    }
    REQUIRE(file_ >= 0);
    memory_ = mmap(nullptr, Page::size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  ~Other() {
    munmap(memory_, Page::size_bytes);
    close(file_);
  }
  int file() const { return file_; }
  Seen& head() const { return *static_cast<Seen*>(memory_); }
  // Empty, while it is written.
  std::string text() const {
    const std::uint32_t before = head().written.load();
    std::string found(static_cast<char*>(memory_) + Page::text_at, head().text_bytes.load());
    return before % 2 || head().written.load() != before ? "" : found;
  }

 private:
  int file_ = -1;
  void* memory_ = nullptr;
};

}  // namespace

TEST_CASE("who rings is heard at once, and answered later") {
  Page page("1.2.3");
  const Other other;
  CHECK(std::strcmp(other.head().magic.data(), "aiocuda") == 0);
  CHECK(other.head().layout == Page::layout);
  CHECK(other.head().process == static_cast<std::uint32_t>(getpid()));
  CHECK(std::strcmp(other.head().version.data(), "1.2.3") == 0);
  std::thread listening([&] { page.await_ring(); });
  const std::uint32_t rung = ring(other.head().bell);
  listening.join();
  page.note_heard({1, 2, 3, 4, 5, 6});
  CHECK(other.head().heard == rung);
  CHECK(other.head().answered != rung);
  CHECK(other.head().counts[5] == 6);
  CHECK(other.head().heard_ns > 0);
  CHECK(page.answer("hello"));
  CHECK(other.head().answered == rung);
  CHECK(other.text() == "hello");
}

TEST_CASE("a ring while another one is answered is heard next, whatever the page says") {
  Page page("1");
  const Other other;
  ring(other.head().bell);
  page.await_ring();
  page.note_heard({});
  const std::uint32_t next = ring(other.head().bell);
  page.answer("one");
  CHECK(other.head().answered != next);
  other.head().heard = 77;  // somebody's mischief
  page.await_ring();
  page.note_heard({});
  page.answer("two");
  CHECK(other.head().answered == next);
}

TEST_CASE("a text that is too long is refused, and the last one stays") {
  Page page("1");
  const Other other;
  CHECK(page.answer(std::string(Page::most_text_bytes, 'x')));
  CHECK_FALSE(page.answer(std::string(Page::most_text_bytes + 1, 'y')));
  CHECK(other.text() == std::string(Page::most_text_bytes, 'x'));
}

TEST_CASE("a version that is too long for its place is cut off") {
  const Page page(std::string(100, 'v'));
  const Other other;
  CHECK(std::string(other.head().version.data()) == std::string(31, 'v'));
}

TEST_CASE("nobody can take the memory from under the page") {
  const Page page("1");
  const Other other;
  CHECK(ftruncate(other.file(), 0) != 0);
  CHECK(ftruncate(other.file(), Page::size_bytes * 2) != 0);
  CHECK(fcntl(other.file(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("a forked process that drops the page keeps what lies in its place") {
  std::optional<Page> page("1");
  std::uintptr_t address = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:aiocuda-live") != std::string::npos) address = std::stoul(line, nullptr, 16);
  REQUIRE(address);
  const pid_t child = fork();
  if (child == 0) {
    void* const own = mmap(reinterpret_cast<void*>(address), Page::size_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (own == MAP_FAILED) _exit(1);  // the page is there
    page.reset();
    *static_cast<volatile char*>(own) = 1;
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
