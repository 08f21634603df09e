// Compiled modules on disk, shared by all processes of the user and by no one else. An entry is one file, written aside
// and renamed, so a reader sees a whole one or none; what does not check out is a miss. The cache never makes
// a compilation fail: a directory that cannot be used is no cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "private_directory.hpp"

namespace aiocuda::emulator::nvrtc {

struct CachedModule {
  std::string image;
  std::string log;
  std::vector<std::string> lowered_names;
  // Files read besides the program, with the hash of what they held: a hit needs them unchanged.
  std::vector<std::pair<std::string, std::string>> dependencies;
};

class Cache {
 public:
  Cache(const std::string& directory, std::uint64_t limit_bytes) : directory_(directory), limit_bytes_(limit_bytes) {}

  std::optional<CachedModule> find(const std::string& key) const;
  void store(const std::string& key, const CachedModule& module) const;

 private:
  static std::string entry_of(const std::string& key);
  void remove_oldest() const;

  PrivateDirectory directory_;
  std::uint64_t limit_bytes_;
};

}  // namespace aiocuda::emulator::nvrtc
