// A way between files and a device's memory that does not lead through the host's: a disk writes there itself. Knows
// neither CUDA nor Python.
//
// Always true: a part's numbers stay where they are until its file is gone, because the library looks at them when the
// device comes to the part.
#pragma once
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace aiocuda::staging {

// What a library is told of one part of a file, and tells of it.
struct DirectPart {
  std::size_t size_bytes;
  off_t offset;            // in the file
  off_t offset_in_memory;  // always 0: the address is the part's own
  ssize_t moved_bytes;     // or -1, if the system failed; or a negative number of the library's
};

// The library that moves the bytes.
class DirectWay {
 public:
  using Handle = void*;

  DirectWay() = default;
  DirectWay(const DirectWay&) = delete;
  DirectWay& operator=(const DirectWay&) = delete;
  virtual ~DirectWay() = default;
  // None if it cannot move this file's bytes.
  virtual Handle take(int descriptor) = 0;
  virtual void give_back(Handle handle) noexcept = 0;
  // Puts a part on a device's stream. Keeps the part's address until the stream has passed. If the library refuses,
  // the part says so.
  virtual void move(Handle handle, bool reads, std::uint64_t address, DirectPart& part, void* stream) = 0;
};

// A file, as the library has it.
class DirectFile {
 public:
  // None: the file's system does not let a device at it, or the library does not know the system.
  static std::unique_ptr<DirectFile> of(std::shared_ptr<DirectWay> way, int descriptor, bool reads) {
    // The same file once more: the system's cache must not come between.
    const std::string same = "/proc/self/fd/" + std::to_string(descriptor);
    constexpr int flags = O_DIRECT | O_CLOEXEC;
    // A write that ends within a sector needs what stands behind it there. Not everybody may read what he writes.
    int own = ::open(same.c_str(), (reads ? O_RDONLY : O_RDWR) | flags);
    if (own < 0 && !reads) own = ::open(same.c_str(), O_WRONLY | flags);
    if (own < 0) return nullptr;
    std::unique_ptr<DirectFile> file(new DirectFile(std::move(way), own, reads));
    file->handle_ = file->way_->take(own);
    return file->handle_ ? std::move(file) : nullptr;
  }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile() {
    if (handle_) way_->give_back(handle_);
    ::close(descriptor_);
  }

  const std::deque<DirectPart>& parts() const { return parts_; }
  DirectPart& add(std::uint64_t offset, std::uint64_t size_bytes) {
    return parts_.emplace_back(DirectPart{size_bytes, static_cast<off_t>(offset), 0, 0});
  }
  void move(DirectPart& part, std::uint64_t address, void* stream) {
    way_->move(handle_, reads_, address, part, stream);
  }

 private:
  DirectFile(std::shared_ptr<DirectWay> way, int descriptor, bool reads)
      : way_(std::move(way)), reads_(reads), descriptor_(descriptor) {}

  const std::shared_ptr<DirectWay> way_;
  const bool reads_;
  const int descriptor_;
  DirectWay::Handle handle_ = nullptr;
  std::deque<DirectPart> parts_;
};

}  // namespace aiocuda::staging
