// A directory that belongs to the user alone, and the files in it: what stands in it may be run. Always true: the
// directory is the user's and closed to others; a file is read only if it is the user's, too. Everything is done
// relative to the open directory, so what becomes of its path, or of links on it, changes nothing.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::nvrtc {

class PrivateDirectory {
 public:
  struct File {
    std::string name;
    std::uint64_t size_bytes;
    std::timespec used;
  };

  // Opens the directory, making it and those above it where they are missing. One that others may write to, that is
  // someone else's, or that is a link, is not opened.
  explicit PrivateDirectory(const std::string& path) noexcept;
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();

  bool is_open() const noexcept { return directory_ >= 0; }

  // False where there is no such file of the user's that others cannot write to.
  bool read(const std::string& name, std::string& content) const;
  // Written aside under a name that nobody can guess, and renamed: a reader sees a whole file or none.
  bool write(const std::string& name, std::string_view content) const;
  void touch(const std::string& name) const noexcept;
  void remove(const std::string& name) const noexcept;
  std::vector<File> files() const;

 private:
  int directory_ = -1;
};

}  // namespace aiocuda::emulator::nvrtc
