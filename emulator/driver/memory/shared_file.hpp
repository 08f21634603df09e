// Memory that other processes can map: a file without a name (memfd), of which ranges are handed out.
// Always: a range that nobody holds any more has given its memory back, and reads as zeros when it is used again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace aiocuda::emulator::memory {

// A descriptor that is closed once.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  explicit operator bool() const noexcept { return number_ >= 0; }
  int number() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

// What tells one file from all others on this machine while anybody has it open.
struct FileIdentity {
  std::uint64_t device = 0, node = 0;
  bool operator==(const FileIdentity&) const = default;
};
// All zeros where there is no such file.
FileIdentity identity_of(int descriptor) noexcept;
// 0 where there is no such file.
std::size_t bytes_of(int descriptor) noexcept;

class SharedFile : public std::enable_shared_from_this<SharedFile> {
 public:
  // A part of the file, in pages. Its end gives its memory back.
  class Range {
   public:
    Range(std::shared_ptr<SharedFile> file, std::size_t offset, std::size_t bytes)
        : file_(std::move(file)), offset_(offset), bytes_(bytes) {}
    ~Range() { file_->give_back(offset_, bytes_); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    const SharedFile& file() const noexcept { return *file_; }
    std::size_t offset() const noexcept { return offset_; }
    std::size_t bytes() const noexcept { return bytes_; }

   private:
    const std::shared_ptr<SharedFile> file_;
    const std::size_t offset_, bytes_;
  };

  // Its first `header_bytes` are never handed out. Null where the system has no such files, or no descriptor is left.
  static std::shared_ptr<SharedFile> make(std::size_t header_bytes);

  int descriptor() const noexcept { return descriptor_.number(); }
  const FileIdentity& identity() const noexcept { return identity_; }

  // Zero-filled; null where the file cannot grow. `bytes` is a multiple of the page size.
  std::shared_ptr<const Range> allocate(std::size_t bytes);

 private:
  SharedFile(Descriptor descriptor, std::size_t header_bytes);
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

  const Descriptor descriptor_;
  const FileIdentity identity_;
  std::mutex mutex_;
  std::size_t end_;                          // of what was handed out so far
  std::map<std::size_t, std::size_t> free_;  // offset to bytes, below the end; neighbours are always joined
};

}  // namespace aiocuda::emulator::memory
