// The file's system calls, and the account of its ranges.
#include "memory/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace aiocuda::emulator::memory {

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

FileIdentity identity_of(int descriptor) noexcept {
  struct stat found{};
  if (::fstat(descriptor, &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

std::size_t bytes_of(int descriptor) noexcept {
  struct stat found{};
  return ::fstat(descriptor, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
}

std::shared_ptr<SharedFile> SharedFile::make(std::size_t header_bytes) {
  Descriptor descriptor(::memfd_create("emulated-cuda-memory", MFD_CLOEXEC));
  if (!descriptor || ::ftruncate(descriptor.number(), static_cast<off_t>(header_bytes)) != 0) return nullptr;
  return std::shared_ptr<SharedFile>(new SharedFile(std::move(descriptor), header_bytes));
}

SharedFile::SharedFile(Descriptor descriptor, std::size_t header_bytes)
    : descriptor_(std::move(descriptor)), identity_(identity_of(descriptor_.number())), end_(header_bytes) {}

std::shared_ptr<const SharedFile::Range> SharedFile::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const auto& extent) { return extent.second >= bytes; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  std::size_t offset = end_;
  if (found != free_.end()) {
    const auto [start, size] = *found;
    offset = start;
    free_.erase(found);
    if (size != bytes) free_.emplace(start + bytes, size - bytes);
  } else {
    if (::ftruncate(descriptor(), static_cast<off_t>(end_ + bytes)) != 0) return nullptr;
    end_ += bytes;
  }
  return std::make_shared<const Range>(shared_from_this(), offset, bytes);
}

void SharedFile::give_back(std::size_t offset, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  // Before somebody else gets the range: who does expects zeros.
  ::fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace_hint(after, offset, bytes);
}

}  // namespace aiocuda::emulator::memory
