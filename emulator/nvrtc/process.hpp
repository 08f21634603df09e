// Running the compiler: a child process without a shell, and a directory that goes away with its owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct ProcessResult {
  bool started = false;
  int exit_status = -1;  // 128 + signal where a signal ended it
  std::string output;    // standard error and standard output
};

// Runs `command` (its first element a path) to its end, its messages in English.
ProcessResult run_process(const std::vector<std::string>& command);

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& parent);  // throws std::filesystem::filesystem_error
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// All of an open file; false where that cannot be.
bool read_all(int file, std::string& content);
bool write_all(int file, std::string_view content);

// Whole files. Reading answers false if it fails; writing throws std::filesystem::filesystem_error. Only the user has
// access to a written file, and writing follows no link.
bool read_file(const std::filesystem::path& path, std::string& content);
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace aiocuda::emulator::nvrtc
