// Files as ends of copies, carried by several threads at once (run under ThreadSanitizer).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "staging/copy_threads.hpp"

using namespace aiocuda::staging;

namespace {

using Bytes = std::vector<std::byte>;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "aiocuda-files-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string of(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

Bytes numbered(std::size_t size) {
  Bytes bytes(size);
  std::mt19937 random(1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}
void store(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
Bytes stored(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Bytes bytes;
  std::transform(std::istreambuf_iterator<char>(file), {}, std::back_inserter(bytes),
                 [](char each) { return static_cast<std::byte>(each); });
  return bytes;
}
bool is_open(const std::string& path) {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(each.path(), ignored) == path) return true;
  }
  return false;
}

// Carries all bytes in parts of `step`, by several threads.
template <class F>
void in_parts(std::uint64_t size, std::uint64_t step, F&& carry) {
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t begin; (begin = next.fetch_add(step)) < size;) carry(begin, std::min(begin + step, size));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("several threads read a file, and the last one closes it") {
  const Folder folder;
  const std::string path = folder.of("data");
  const Bytes data = numbered(1 << 20);
  store(path, data);
  File file(path, File::Use::read, 1000, data.size() - 1000);
  Bytes read(data.size() - 1000);
  in_parts(read.size(), 7777,
           [&](std::uint64_t begin, std::uint64_t end) { file.read(begin, end, read.data() + begin); });
  CHECK(read == Bytes(data.begin() + 1000, data.end()));
  CHECK(file.moved_bytes() == read.size());
  CHECK_FALSE(file.failure());
  CHECK_FALSE(is_open(path));
}

TEST_CASE("a file stays open until its last part is carried, or nobody has it") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(100));
  Bytes read(100);
  {
    File file(path, File::Use::read, 0, 100);
    CHECK_FALSE(is_open(path));
    file.read(0, 60, read.data());
    CHECK(is_open(path));
  }
  CHECK_FALSE(is_open(path));
}

TEST_CASE("parts that are carried once more are the same, and the file is closed again") {
  const Folder folder;
  const std::string path = folder.of("data");
  const Bytes data = numbered(1000);
  File written(path, File::Use::replace, 2, data.size(), "ab");
  for (int round = 0; round < 2; ++round) {
    written.write(0, 600, data.data());
    written.write(600, 1000, data.data() + 600);
    CHECK_FALSE(is_open(path));
  }
  CHECK(stored(path).size() == 1002);
  Bytes read(1000);
  File again(path, File::Use::read, 2, 1000);
  again.read(0, 600, read.data());
  for (int round = 0; round < 2; ++round) {
    in_parts(1000, 90, [&](std::uint64_t begin, std::uint64_t end) { again.read(begin, end, read.data() + begin); });
    CHECK(read == data);
    CHECK_FALSE(again.failure());
    CHECK_FALSE(is_open(path));
  }
}

TEST_CASE("several threads write a file behind its head, and nothing that was there before stays") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(3 << 20));
  const Bytes data = numbered(1 << 20);
  File file(path, File::Use::replace, 4, data.size(), "head");
  in_parts(data.size(), 9999,
           [&](std::uint64_t begin, std::uint64_t end) { file.write(begin, end, data.data() + begin); });
  CHECK_FALSE(file.failure());
  CHECK_FALSE(is_open(path));
  const Bytes found = stored(path);
  REQUIRE(found.size() == data.size() + 4);
  CHECK(std::to_integer<char>(found[0]) == 'h');
  CHECK(Bytes(found.begin() + 4, found.end()) == data);
}

TEST_CASE("a copy of no bytes makes a file, and one that updates keeps all others") {
  const Folder folder;
  const std::string path = folder.of("data");
  File made(path, File::Use::replace, 0, 0);
  made.write(0, 0, nullptr);
  CHECK(std::filesystem::file_size(path) == 0);
  store(path, Bytes(10, std::byte{1}));
  const Bytes two(2, std::byte{2});
  File updated(path, File::Use::update, 12, 2);
  updated.write(0, 2, two.data());
  Bytes expected(10, std::byte{1});
  expected.resize(12);
  expected.insert(expected.end(), two.begin(), two.end());
  CHECK(stored(path) == expected);
}

TEST_CASE("the first failure is kept, and no byte is moved after it") {
  const Folder folder;
  Bytes bytes(100, std::byte{7});
  File missing(folder.of("missing"), File::Use::read, 0, 100);
  in_parts(100, 10, [&](std::uint64_t begin, std::uint64_t end) { missing.read(begin, end, bytes.data() + begin); });
  REQUIRE(missing.failure());
  CHECK(missing.failure()->error == ENOENT);
  CHECK(std::string(missing.failure()->step) == "open");
  CHECK(bytes == Bytes(100, std::byte{7}));

  File full("/dev/full", File::Use::replace, 0, 100);
  in_parts(100, 10, [&](std::uint64_t begin, std::uint64_t end) { full.write(begin, end, bytes.data() + begin); });
  CHECK(full.failure()->error == ENOSPC);
  CHECK(full.moved_bytes() == 0);
}

TEST_CASE("a file that is shortened after it was opened says where it ends") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(1000));
  Bytes read(1000);
  File file(path, File::Use::read, 0, 1000);
  file.read(0, 10, read.data());
  std::filesystem::resize_file(path, 500);
  in_parts(990, 90,
           [&](std::uint64_t begin, std::uint64_t end) { file.read(begin + 10, end + 10, read.data() + begin + 10); });
  REQUIRE(file.failure());
  CHECK(file.failure()->error == 0);
  CHECK(file.failure()->bytes >= 500);
  CHECK_FALSE(is_open(path));
}

namespace {
// A library that moves each part at once: the test's memory is the device's.
class Library final : public DirectWay {
 public:
  Handle take(int descriptor) override {
    flags = ::fcntl(descriptor, F_GETFL);
    if (refuses) return nullptr;
    ++held;
    return new int(::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), flags & O_ACCMODE));
  }
  void give_back(Handle handle) noexcept override {
    const std::unique_ptr<int> last(static_cast<int*>(handle));
    ::close(*last);
    --held;
  }
  void move(Handle handle, bool reads, std::uint64_t address, DirectPart& part, void* stream) override {
    CHECK(stream == this);
    const int descriptor = *static_cast<int*>(handle);
    auto* const memory = reinterpret_cast<std::byte*>(address);
    part.moved_bytes = answer  ? answer
                       : reads ? ::pread(descriptor, memory, part.size_bytes, part.offset)
                               : ::pwrite(descriptor, memory, part.size_bytes, part.offset);
  }

  bool refuses = false;
  ssize_t answer = 0;
  int flags = 0, held = 0;
};

struct Replaced {
  Replaced(const std::string& path, std::string head, std::uint64_t size)
      : file(path, File::Use::replace, head.size(), size, head, true) {
    file.open_directly(library);
    REQUIRE(file.is_direct());
  }
  const std::shared_ptr<Library> library = std::make_shared<Library>();
  File file;
};

void move_all(File& file, std::uint64_t size, std::uint64_t step, Bytes& memory, Library& library) {
  for (std::uint64_t begin = 0; begin < size; begin += step) {
    if (file.is_replaced()) file.begin_directly();
    file.move_directly(begin, std::min(step, size - begin), reinterpret_cast<std::uint64_t>(memory.data() + begin),
                       &library);
  }
}
}  // namespace

TEST_CASE("a library moves the parts of a file that it has taken, and gives it back at the end") {
  const Folder folder;
  const std::string path = folder.of("data");
  const Bytes data = numbered(300'000);
  store(path, data);
  const auto library = std::make_shared<Library>();
  {
    Bytes read(299'000);
    File file(path, File::Use::read, 1000, read.size(), {}, true);
    CHECK(file.needs_opening());
    file.open_directly(library);
    CHECK_FALSE(file.needs_opening());
    REQUIRE(file.is_direct());
    CHECK((library->flags & O_DIRECT) != 0);
    CHECK(library->held == 1);
    move_all(file, read.size(), 70'000, read, *library);
    CHECK_FALSE(file.failure());
    CHECK(read == Bytes(data.begin() + 1000, data.end()));
  }
  CHECK(library->held == 0);
  CHECK_FALSE(is_open(path));
}

TEST_CASE("a file that is replaced directly keeps what it had until the device comes to its first part") {
  const Folder folder;
  const std::string path = folder.of("data");
  const Bytes before = numbered(200'000);
  Bytes data = numbered(100'000);
  store(path, before);
  Replaced made(path, "abc", data.size());
  CHECK(stored(path) == before);
  move_all(made.file, data.size(), 40'000, data, *made.library);
  CHECK_FALSE(made.file.failure());
  const Bytes written = stored(path);
  REQUIRE(written.size() == 100'003);
  CHECK(written[0] == std::byte{'a'});
  CHECK(Bytes(written.begin() + 3, written.end()) == data);
}

TEST_CASE("threads carry an array of the host's beside those that a library moves") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(200'000));
  Bytes data = numbered(100'000);
  Replaced made(path, {}, data.size());
  made.file.write(60'000, 100'000, data.data() + 60'000);
  move_all(made.file, 60'000, 60'000, data, *made.library);
  CHECK_FALSE(made.file.failure());
  CHECK(stored(path) == data);
}

TEST_CASE("without a library, or where that refuses a file, threads carry it from the beginning") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(200'000));
  const Bytes data = numbered(100'000);
  std::shared_ptr<Library> library;
  SUBCASE("without one") {}
  SUBCASE("refused") {
    library = std::make_shared<Library>();
    library->refuses = true;
  }
  File file(path, File::Use::replace, 0, data.size(), {}, true);
  file.open_directly(library);
  CHECK_FALSE(file.is_direct());
  CHECK_FALSE(is_open(path));
  CHECK(std::filesystem::file_size(path) == 200'000);
  file.write(0, data.size(), data.data());
  CHECK_FALSE(file.failure());
  CHECK(stored(path) == data);
}

TEST_CASE("a library's failures are the file's") {
  const Folder folder;
  const std::string path = folder.of("data");
  store(path, numbered(100'000));
  const auto library = std::make_shared<Library>();
  Bytes memory(100'000);
  const auto failure_of = [&](File::Use use, std::uint64_t step) {
    File file(path, use, 0, memory.size(), {}, true);
    file.open_directly(library);
    REQUIRE(file.is_direct());
    std::filesystem::resize_file(path, 50'000);
    move_all(file, memory.size(), step, memory, *library);
    std::filesystem::resize_file(path, 100'000);
    REQUIRE(file.failure());
    return *file.failure();
  };
  const auto shortened = failure_of(File::Use::read, 30'000);
  CHECK(shortened.error == 0);
  CHECK(shortened.bytes == 50'000);
  library->answer = -1;
  CHECK(failure_of(File::Use::update, 30'000).error == EIO);
  library->answer = -5011;
  CHECK(failure_of(File::Use::read, 30'000).error == 5011);
  library->answer = 10'000;  // some of a write, and no more
  const auto some = failure_of(File::Use::update, 30'000);
  CHECK(some.error == EIO);
  CHECK(some.bytes == 10'000);

  File none(folder.of("none"), File::Use::read, 0, 10, {}, true);
  none.open_directly(library);
  CHECK_FALSE(none.is_direct());
  REQUIRE(none.failure());
  CHECK(none.failure()->error == ENOENT);
}

TEST_CASE("ends of copies meet where they touch the same bytes of one file, or of memory") {
  const auto end_of = [](const char* path, File::Use use, std::uint64_t offset, std::uint64_t size) {
    return HostEnd(std::make_shared<File>(path, use, offset, size), 0, size);
  };
  const HostEnd low = end_of("/a", File::Use::read, 0, 100), high = end_of("/a", File::Use::update, 100, 50);
  CHECK_FALSE(low.meets(high));
  CHECK(low.meets(end_of("/a", File::Use::update, 99, 2)));
  CHECK_FALSE(low.meets(end_of("/b", File::Use::read, 0, 100)));
  CHECK(high.meets(end_of("/a", File::Use::replace, 0, 1)));
  Bytes bytes(10);
  const HostEnd memory = HostLayout(bytes.data(), {10}, {1}, 1);
  CHECK(memory.meets(memory));
  CHECK_FALSE(memory.meets(end_of("/a", File::Use::replace, 0, 1)));
}

TEST_CASE("a transfer of a file goes through a ring, and one of no bytes has one part") {
  const Folder folder;
  const std::string path = folder.of("data");
  const Bytes data = numbered(300'000);
  store(path, data);
  Bytes ring_bytes(1 << 17), device(data.size());
  std::vector<std::uint32_t> numbers(3 * Words::stride, 0);
  CopyThreads threads(2);
  Ring* const ring = threads.add_ring(ring_bytes, {numbers.data()});
  const auto carry = [&](const HostEnd& end, Way way) {
    const auto [transfer, parts] = threads.hand_over(*ring, end, way, 1 << 16);
    threads.call(*transfer, nullptr);
    const Words words = ring->words();
    for (const auto& [number, packed, begin, size] : parts) {
      while (!has_reached(read_word(words.granted()), number)) std::this_thread::yield();
      std::byte* const there = device.data() + begin;
      if (way == Way::fill)
        std::copy_n(packed, size, there);
      else
        std::copy_n(there, size, packed);
      write_word(words.passed(), number);
    }
    while (!transfer->has_ended()) std::this_thread::yield();
    return parts.size();
  };
  const auto whole = [&](const std::string& name, File::Use use, std::uint64_t size) {
    return HostEnd(std::make_shared<File>(name, use, 0, size), 0, size);
  };
  CHECK(carry(whole(path, File::Use::read, data.size()), Way::fill) == 5);
  CHECK(device == data);
  CHECK(threads.thread_count() == 3);  // one is left for memory
  CHECK(carry(whole(folder.of("copy"), File::Use::replace, data.size()), Way::drain) == 5);
  CHECK(stored(folder.of("copy")) == data);
  CHECK(carry(whole(folder.of("none"), File::Use::replace, 0), Way::drain) == 1);
  CHECK(std::filesystem::file_size(folder.of("none")) == 0);
}
