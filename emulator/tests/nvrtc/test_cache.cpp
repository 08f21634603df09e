// The cache on disk: hits, what makes a miss, damage, several users at once, its size.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "nvrtc/cache.hpp"
#include "support.hpp"

using namespace nvrtc_tests;
namespace fs = std::filesystem;
using aiocuda::emulator::nvrtc::Cache;
using aiocuda::emulator::nvrtc::CachedModule;

namespace {

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

const char* const source = "extern \"C\" __global__ void cached(int* x) { x[0] = 31; }";

}  // namespace

TEST_CASE("the second compilation comes from the cache, and is quick") {
  const ScratchDirectory directory;
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path() / "made" / "anew");
  const Compiled first = compile({.source = source, .name_expressions = {"cached"}});
  REQUIRE(first.succeeded());
  CHECK(entries(directory.path() / "made" / "anew" / "modules") == 1);
  double best_s = 1;
  for (int i = 0; i < 5; ++i) {
    const auto before = std::chrono::steady_clock::now();
    const Compiled second = compile({.source = source, .name_expressions = {"cached"}});
    best_s = std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    CHECK(second.image == first.image);
    CHECK(second.lowered_names == first.lowered_names);
  }
  MESSAGE("a cached compilation takes " << best_s * 1e3 << " ms");
  CHECK(best_s < 0.05);
}

TEST_CASE("source, options, name expressions and headers each make another entry") {
  const ScratchDirectory directory;
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path());
  CHECK(compile({.source = source}).succeeded());
  CHECK(compile({.source = std::string(source) + " "}).succeeded());
  CHECK(compile({.source = source, .options = {"-DX"}}).succeeded());
  CHECK(compile({.source = source, .name_expressions = {"cached"}}).succeeded());
  CHECK(compile({.source = source, .headers = {{"a.h", "1"}}}).succeeded());
  CHECK(compile({.source = source, .headers = {{"a.h", "2"}}}).succeeded());
  CHECK(entries(directory.path() / "modules") == 6);
  CHECK(compile({.source = "__global__ void k() { wrong }"}).result == 6);
  CHECK(entries(directory.path() / "modules") == 6);
  CHECK(compile({.source = std::string(source) + "  ", .options = {"--no-cache"}}).succeeded());
  CHECK(entries(directory.path() / "modules") == 6);
}

TEST_CASE("a damaged entry is compiled again") {
  const ScratchDirectory directory;
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path());
  const Compiled first = compile({.source = source});
  const fs::path entry = fs::directory_iterator(directory.path() / "modules")->path();
  const std::uintmax_t size = fs::file_size(entry);
  SUBCASE("cut short") { fs::resize_file(entry, size / 2); }
  SUBCASE("empty") { fs::resize_file(entry, 0); }
  SUBCASE("a byte changed") {
    std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.put('\x5a').put('\x5a').put('\x5a');
  }
  const Module module(Program{.source = source});
  int x = 0;
  module.launch("cached", {}, &x);
  CHECK(x == 31);
  CHECK(fs::file_size(entry) == size);
}

TEST_CASE("a directory that cannot be used is no cache") {
  const ScratchDirectory directory;
  std::ofstream(directory.path() / "file") << "not a directory";
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path() / "file");
  CHECK(compile({.source = source}).succeeded());
  CHECK(compile({.source = source}).succeeded());
}

TEST_CASE("a directory that others may write to, or a link, is no cache; one that others may read is closed to them") {
  const ScratchDirectory directory;
  const fs::path modules = directory.path() / "modules";
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path());
  SUBCASE("others may write") {
    fs::create_directory(modules);
    fs::permissions(modules, fs::perms(0777));
    CHECK(compile({.source = source}).succeeded());
    CHECK(entries(modules) == 0);
  }
  SUBCASE("a link") {
    fs::create_directory(directory.path() / "elsewhere");
    fs::create_directory_symlink(directory.path() / "elsewhere", modules);
    CHECK(compile({.source = source}).succeeded());
    CHECK(entries(directory.path() / "elsewhere") == 0);
  }
  SUBCASE("others may read") {
    fs::create_directory(modules);
    fs::permissions(modules, fs::perms(0755));
    CHECK(compile({.source = source}).succeeded());
    CHECK(entries(modules) == 1);
    CHECK(fs::status(modules).permissions() == fs::perms(0700));
  }
  SUBCASE("made under a mask that closes nothing") {
    const mode_t mask = ::umask(0);
    CHECK(compile({.source = source}).succeeded());
    ::umask(mask);
    CHECK(fs::status(modules).permissions() == fs::perms(0700));
    const fs::path entry = fs::directory_iterator(modules)->path();
    CHECK(fs::status(entry).permissions() == fs::perms(0600));
    CHECK(entries(modules) == 1);
  }
}

TEST_CASE("an entry that others may write to, that is a link, a pipe, or someone else's, is compiled again") {
  const ScratchDirectory directory;
  const Cache cache(directory.path(), 1 << 20);
  CachedModule module;
  module.image = "image";
  cache.store("k", module);
  REQUIRE(cache.find("k").has_value());
  const fs::path entry = directory.path() / "k.module";
  SUBCASE("others may write") { fs::permissions(entry, fs::perms(0666)); }
  SUBCASE("a link") {
    fs::rename(entry, directory.path() / "elsewhere");
    fs::create_symlink("elsewhere", entry);
  }
  SUBCASE("a pipe") {
    fs::remove(entry);
    REQUIRE(::mkfifo(entry.c_str(), 0600) == 0);
  }
  SUBCASE("someone else's") {
    if (::geteuid() != 0 || ::chown(entry.c_str(), 65534, 65534) != 0) return;  // only root can give a file away
  }
  CHECK_FALSE(cache.find("k").has_value());
}

TEST_CASE("several threads that compile the same at once all get it") {
  const ScratchDirectory directory;
  const EnvironmentVariable here("AIOCUDA_CACHE_DIR", directory.path());
  std::vector<Compiled> results(4);
  std::vector<std::thread> threads;
  for (Compiled& result : results) threads.emplace_back([&result] { result = compile({.source = source}); });
  for (std::thread& thread : threads) thread.join();
  for (const Compiled& result : results) CHECK(result.succeeded());
  CHECK(entries(directory.path() / "modules") == 1);
}

TEST_CASE("beyond its limit the cache drops what was used longest ago") {
  const ScratchDirectory directory;
  const Cache cache(directory.path(), 3500);
  CachedModule module;
  module.image.assign(1000, 'x');
  for (const char* key : {"a", "b", "c"}) cache.store(key, module);
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(directory.path() / "a.module", now - std::chrono::hours(1));
  fs::last_write_time(directory.path() / "b.module", now - std::chrono::hours(3));
  fs::last_write_time(directory.path() / "c.module", now - std::chrono::hours(2));
  CHECK(cache.find("a").has_value());  // used now
  cache.store("d", module);
  CHECK(cache.find("a").has_value());
  CHECK_FALSE(cache.find("b").has_value());
  CHECK(cache.find("c").has_value());
  CHECK(cache.find("d").has_value());
}

TEST_CASE("an entry whose files have changed is a miss") {
  const ScratchDirectory directory;
  const fs::path header = directory.path() / "header.h";
  std::ofstream(header) << "one";
  const Cache cache(directory.path() / "cache", 1 << 20);
  CachedModule module;
  module.image = "image";
  // SHA-256 of "one".
  module.dependencies = {{header, "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"}};
  cache.store("k", module);
  CHECK(cache.find("k").has_value());
  std::ofstream(header) << "two";
  CHECK_FALSE(cache.find("k").has_value());
}
