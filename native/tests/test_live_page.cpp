// The page that another process reads: who rings is heard and answered, and nobody reads half a text.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "live/page.hpp"

using namespace aiocuda::live;

namespace {

// The page as another process has it: mapped once more.
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
  Layout& memory() const { return *static_cast<Layout*>(memory_); }
  PageReader reader() const { return PageReader({static_cast<std::byte*>(memory_), Page::size_bytes}); }

 private:
  int file_ = -1;
  void* memory_ = nullptr;
};

}  // namespace

TEST_CASE("who rings is heard at once, and answered later") {
  Page page("1.2.3");
  const Other other;
  const auto owner = other.reader().owner();
  REQUIRE(owner);
  CHECK(owner->layout == Layout::number);
  CHECK(owner->process == static_cast<std::uint32_t>(getpid()));
  CHECK(owner->version.c_str() == std::string("1.2.3"));
  std::thread listening([&] { page.await_ring(); });
  const std::uint32_t rung = other.reader().ring();
  listening.join();
  page.note_heard({1, 2, 3, 4, 5, 6});
  auto told = other.reader().told();
  REQUIRE(told);
  CHECK(told->heard == rung);
  CHECK(told->answered != rung);
  CHECK(told->counts == Counts{1, 2, 3, 4, 5, 6});
  CHECK(told->heard_ns > 0);
  CHECK(page.answer("hello"));
  told = other.reader().told();
  REQUIRE(told);
  CHECK(told->answered == rung);
  CHECK(told->text == "hello");
}

TEST_CASE("a ring while another one is answered is heard next, whatever the page says") {
  Page page("1");
  const Other other;
  other.reader().ring();
  page.await_ring();
  page.note_heard({});
  const std::uint32_t next = other.reader().ring();
  page.answer("one");
  CHECK(other.memory().answered != next);
  other.memory().heard = 77;  // somebody's mischief
  page.await_ring();
  page.note_heard({});
  page.answer("two");
  CHECK(other.memory().answered == next);
}

TEST_CASE("a text that is too long is refused, and the last one stays") {
  Page page("1");
  const Other other;
  CHECK(page.answer(std::string(Page::most_text_bytes, 'x')));
  CHECK_FALSE(page.answer(std::string(Page::most_text_bytes + 1, 'y')));
  CHECK(other.reader().told()->text == std::string(Page::most_text_bytes, 'x'));
}

TEST_CASE("a version that is too long for its place is cut off") {
  const Page page(std::string(100, 'v'));
  const Other other;
  CHECK(other.reader().owner()->version == std::string(31, 'v') + '\0');
}

TEST_CASE("while something is written, nothing is read") {
  Page page("1");
  const Other other;
  page.answer("one");
  ++other.memory().written;
  CHECK_FALSE(other.reader().told());
  ++other.memory().written;
  CHECK(other.reader().told()->text == "one");
}

TEST_CASE("who reads while another thread writes reads what was written at one time") {
  Page page("1");
  const Other other;
  std::atomic<bool> is_over = false;
  std::thread writing([&] {
    for (std::uint64_t i = 0; !is_over; ++i) {
      page.note_heard({i, i, i, i, i, i});
      page.answer(std::string(520 + i % 520, static_cast<char>('a' + i % 26)));
      std::this_thread::yield();
    }
  });
  for (int count = 0; count < 2000;) {
    const auto told = other.reader().told();
    if (!told) continue;
    ++count;
    CHECK(std::ranges::count(told->counts, told->counts[0]) == 6);
    if (told->text.empty()) continue;  // before the first one
    CHECK(std::ranges::count(told->text, told->text[0]) == std::ssize(told->text));
    CHECK(told->text[0] == 'a' + static_cast<char>((std::size(told->text) - 520) % 26));
  }
  is_over = true;
  writing.join();
}

TEST_CASE("a page that says more than there is room for is read no further") {
  Page page("1");
  const Other other;
  other.memory().text_bytes = UINT32_MAX;
  CHECK(other.reader().told()->text.size() == Page::most_text_bytes);
}

TEST_CASE("other memory is no page") {
  Page page("1");
  const Other other;
  other.memory().magic = 1;
  CHECK_FALSE(other.reader().owner());
  std::array<std::byte, 16> small;
  CHECK_THROWS_AS(PageReader{small}, std::invalid_argument);
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
