// A byte range of memory with an owner. Knows neither Python nor CUDA.
//
// Always true: the owner gets the range back exactly once, when nothing holds it any more, with the
// hazards that say which work still uses it. Counts are guarded by the GIL.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "ownership.hpp"

namespace aiocuda::dataflow {

inline constexpr std::int32_t host_ordinal = -1;

struct Buffer;

class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void take_back(std::unique_ptr<Buffer> buffer) noexcept = 0;
};

struct Buffer {
  explicit Buffer(std::uint64_t size = 0, std::int32_t where = host_ordinal)
      : size_bytes(size), device(where), hazards(size) {}

  std::uint64_t address = 0;
  const std::uint64_t size_bytes;
  const std::int32_t device;     // ordinal, or host_ordinal for page-locked memory
  MemoryOwner* owner = nullptr;  // outlives every buffer; null: nothing to give back
  RangeHazards hazards;
  std::unique_ptr<Claims> claims;  // once somebody made one
  std::uint32_t holders = 0;

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (previous) previous->next = next;
    if (next) next->previous = previous;
  }
  // The owner's list of buffers.
  Buffer *previous = nullptr, *next = nullptr;
  void insert_after(Buffer& head) {
    previous = &head;
    next = head.next;
    head.next = this;
    if (next) next->previous = this;
  }
};

class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(std::unique_ptr<Buffer> buffer) : buffer_(buffer.release()) { ++buffer_->holders; }
  static BufferRef another(Buffer& held) {  // of a buffer that somebody holds
    BufferRef ref;
    ref.buffer_ = &held;
    ++held.holders;
    return ref;
  }
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
    if (buffer_) ++buffer_->holders;
  }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() { reset(); }

  void reset() {
    Buffer* gone = std::exchange(buffer_, nullptr);
    if (!gone || --gone->holders) return;
    std::unique_ptr<Buffer> last(gone);
    if (last->owner && last->address) {
      MemoryOwner* owner = last->owner;
      owner->take_back(std::move(last));
    }
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

}  // namespace aiocuda::dataflow
