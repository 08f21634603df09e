// Files as ends of copies, carried by several threads at once (run under ThreadSanitizer).
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
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
