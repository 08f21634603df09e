// The host's end of a copy: memory, or a part of a file. Knows neither CUDA nor Python.
//
// Always true: any range of its bytes can be carried, by several threads at once.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "file.hpp"
#include "layout.hpp"

namespace aiocuda::staging {

class HostEnd {
 public:
  HostEnd() = default;
  HostEnd(HostLayout memory) : memory_(std::move(memory)) {}
  // The bytes of a file's copy from `begin` on.
  HostEnd(std::shared_ptr<File> file, std::uint64_t begin, std::uint64_t size_bytes)
      : file_(std::move(file)), file_begin_(begin), file_bytes_(size_bytes) {}

  const File* file() const { return file_.get(); }
  void leave_to_threads() const { file_->leave_to_threads(); }
  bool is_direct() const { return file_ && file_->is_direct(); }
  // To be called with it on the stream, in front of a part; none: nothing is to be done there.
  File* begins_directly() const { return file_->is_replaced() ? file_.get() : nullptr; }
  void move_directly(std::uint64_t address, void* stream) const {
    file_->move_directly(file_begin_, file_bytes_, address, stream);
  }
  bool repeats() const { return memory_.repeats(); }
  std::uint64_t size_bytes() const { return file_ ? file_bytes_ : memory_.size_bytes(); }
  // The range that it touches: addresses, or offsets in the file. A file that is replaced is touched everywhere.
  std::uint64_t begin() const {
    if (!file_) return memory_.begin();
    return file_->is_replaced() ? 0 : file_->offset() + file_begin_;
  }
  std::uint64_t end() const {
    if (!file_) return memory_.end();
    // A part of no bytes opens the file all the same.
    return file_->is_replaced() ? most_end : begin() + std::max<std::uint64_t>(file_bytes_, 1);
  }
  bool meets(const HostEnd& other) const {
    if (!file_ != !other.file_ || (file_ && file_->path() != other.file_->path())) return false;
    return begin() < other.end() && other.begin() < end();
  }

  // Copies the bytes from `begin` to `end`, in C order, to `packed`; or from there.
  void pack(std::uint64_t begin, std::uint64_t end, std::byte* packed) const {
    file_ ? file_->read(file_begin_ + begin, file_begin_ + end, packed) : memory_.pack(begin, end, packed);
  }
  void unpack(std::uint64_t begin, std::uint64_t end, const std::byte* packed) const {
    file_ ? file_->write(file_begin_ + begin, file_begin_ + end, packed) : memory_.unpack(begin, end, packed);
  }

 private:
  static constexpr std::uint64_t most_end = std::numeric_limits<std::uint64_t>::max() - 1;

  HostLayout memory_;
  std::shared_ptr<File> file_;
  std::uint64_t file_begin_ = 0, file_bytes_ = 0;
};

}  // namespace aiocuda::staging
