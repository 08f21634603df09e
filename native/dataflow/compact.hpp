// A list of plain items whose header has 16 bytes, for lists of which there are very many.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

namespace aiocuda::dataflow {

// As a std::vector of fewer than 2^32 items. `reserve` makes room for exactly so many.
template <class T>
class Compact {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Compact() = default;
  Compact(const Compact& other) { assign(other.begin(), other.end()); }
  Compact(Compact&& other) noexcept { swap(other); }
  Compact& operator=(Compact other) noexcept {
    swap(other);
    return *this;
  }
  ~Compact() = default;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T* begin() { return items_.get(); }
  T* end() { return begin() + size_; }
  const T* begin() const { return items_.get(); }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t index) { return items_[index]; }
  const T& operator[](std::size_t index) const { return items_[index]; }

  void reserve(std::size_t room) {
    if (room <= room_) return;
    auto items = std::make_unique_for_overwrite<T[]>(room);
    std::copy(begin(), end(), items.get());
    items_ = std::move(items);
    room_ = static_cast<std::uint32_t>(room);
  }
  void push_back(const T& item) {
    const T added = item;  // it may be one of the list's own
    if (size_ == room_) reserve(std::max<std::size_t>(1, 2 * std::size_t{room_}));
    items_[size_++] = added;
  }
  template <class Iterator>
  void assign(Iterator first, Iterator last) {
    const auto size = static_cast<std::size_t>(std::distance(first, last));
    size_ = 0;
    reserve(size);
    std::copy(first, last, begin());
    size_ = static_cast<std::uint32_t>(size);
  }
  void clear() { size_ = 0; }

 private:
  void swap(Compact& other) noexcept {
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }

  std::unique_ptr<T[]> items_;
  std::uint32_t size_ = 0, room_ = 0;
};

}  // namespace aiocuda::dataflow
