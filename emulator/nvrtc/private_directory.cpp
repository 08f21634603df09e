// See private_directory.hpp.
#include "private_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>

#include "process.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_of_user(const struct stat& status) {
  return status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// 128 random bits; empty where the system gives none.
std::string unguessable() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return {};
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

PrivateDirectory::PrivateDirectory(const std::string& path) noexcept {
  if (path.empty()) return;
  std::filesystem::path made;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    made /= part;
    ::mkdir(made.c_str(), 0700);  // opening tells whether it is there
  }
  directory_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status{};
  if (directory_ < 0 || ::fstat(directory_, &status) != 0) return;
  // Others who might have written before cannot be told from the user any more; others who might read are kept out.
  const bool is_usable = is_of_user(status) && ((status.st_mode & 077) == 0 || ::fchmod(directory_, 0700) == 0);
  if (is_usable) return;
  ::close(directory_);
  directory_ = -1;
}

PrivateDirectory::~PrivateDirectory() {
  if (directory_ >= 0) ::close(directory_);
}

bool PrivateDirectory::read(const std::string& name, std::string& content) const {
  // Not to wait for a pipe's other end.
  const int file = ::openat(directory_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status{};
  const bool is_good = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && is_of_user(status);
  const bool is_read = is_good && read_all(file, content);
  ::close(file);
  return is_read;
}

bool PrivateDirectory::write(const std::string& name, std::string_view content) const {
  const std::string random = unguessable();
  const std::string aside = "." + random;
  if (random.empty()) return false;
  const int file = ::openat(directory_, aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool is_written = write_all(file, content);
  ::close(file);
  if (is_written && ::renameat(directory_, aside.c_str(), directory_, name.c_str()) == 0) return true;
  remove(aside);
  return false;
}

void PrivateDirectory::touch(const std::string& name) const noexcept {
  ::utimensat(directory_, name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

void PrivateDirectory::remove(const std::string& name) const noexcept { ::unlinkat(directory_, name.c_str(), 0); }

std::vector<PrivateDirectory::File> PrivateDirectory::files() const {
  std::vector<File> found;
  const int again = ::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return found;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(again), &::closedir);
  if (listing == nullptr) {
    ::close(again);
    return found;
  }
  while (const dirent* each = ::readdir(listing.get())) {
    struct stat status{};
    if (::fstatat(directory_, each->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    found.push_back({each->d_name, static_cast<std::uint64_t>(status.st_size), status.st_mtim});
  }
  return found;
}

}  // namespace aiocuda::emulator::nvrtc
