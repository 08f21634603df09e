// What the checks within kernels have found and nobody has taken yet. Each is told on standard error at once; the same
// one again is only counted. Thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::checking {

// A thread of a launch.
struct ThreadPlace {
  std::array<std::uint32_t, 3> block{};
  std::array<std::uint32_t, 3> thread{};
};

// A line of a program; no file where it is not known.
struct SourceLine {
  std::string file;
  unsigned line = 0;
  std::string text() const { return file.empty() ? "an unknown line" : file + ":" + std::to_string(line); }
};

std::string text_of(const ThreadPlace& place);

struct KernelReport {
  std::string check;   // "memory", "races", "init" or "sync"
  std::string kernel;  // its name
  SourceLine line;
  ThreadPlace place;
  std::string what;    // the finding in words, without the place
  std::string memory;  // in words which memory it is about; empty where it is about none
  std::uintptr_t address = 0;
};

class KernelReports {
 public:
  // `key` says which reports are the same.
  void add(std::string_view key, const KernelReport& report);
  bool knows(std::string_view key);
  // All of them as JSON, one object a line, and forgets them, if the text is at most so long; answers its length.
  std::size_t take(char* text, std::size_t capacity);

 private:
  struct Kept {
    KernelReport report;
    std::uint64_t count = 1;
  };
  // A program that goes wrong in many places would fill the memory.
  static constexpr std::size_t most_kept = 1000;

  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::size_t not_kept_ = 0;
};

KernelReports& kernel_reports();

// "text" as JSON has it.
std::string in_json(const std::string& text);

}  // namespace aiocuda::emulator::checking

// Like aiocuda_emulator_take_race_reports, for what the checks within kernels found.
extern "C" [[gnu::visibility("default")]] std::size_t aiocuda_emulator_take_kernel_reports(char* text,
                                                                                           std::size_t capacity);
