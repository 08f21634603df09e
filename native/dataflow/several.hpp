// A list of plain items: the first of them need no memory of their own.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace aiocuda::dataflow {

// Always true: the items lie one after another. They move when there are more than `inside` for the first time.
template <class T, std::size_t inside>
class Several {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Several() {}
  Several(const Several& other) { add(other); }
  Several& operator=(const Several& other) {
    if (this != &other) {
      clear();
      add(other);
    }
    return *this;
  }
  Several(Several&& other) noexcept { take(other); }
  Several& operator=(Several&& other) noexcept {
    if (this != &other) take(other);
    return *this;
  }
  ~Several() = default;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T* begin() { return more_ ? more_.get() : first_; }
  T* end() { return begin() + size_; }
  const T* begin() const { return more_ ? more_.get() : first_; }
  const T* end() const { return begin() + size_; }
  T& operator[](std::size_t index) { return begin()[index]; }
  const T& operator[](std::size_t index) const { return begin()[index]; }

  void push_back(const T& item) {
    if (size_ == room_) [[unlikely]]
      return grow(item);
    begin()[size_++] = item;
  }
  // In front of the item of an index.
  void insert(std::size_t index, const T& item) {
    const T added = item;
    push_back(added);
    std::copy_backward(begin() + index, end() - 1, end());
    begin()[index] = added;
  }
  // Those behind the erased ones move up.
  void erase(const T* first, const T* last) {
    std::copy(last, static_cast<const T*>(end()), begin() + (first - begin()));
    size_ -= static_cast<std::uint32_t>(last - first);
  }
  void clear() { size_ = 0; }

 private:
  void add(const Several& others) {
    for (const T& item : others) push_back(item);
  }
  // In place of what it has.
  void take(Several& other) noexcept {
    more_ = std::move(other.more_);
    if (!more_) std::copy_n(other.first_, other.size_, first_);
    size_ = std::exchange(other.size_, 0);
    room_ = std::exchange(other.room_, static_cast<std::uint32_t>(inside));
  }
  [[gnu::noinline]] void grow(T item) {
    auto more = std::make_unique_for_overwrite<T[]>(2 * std::size_t{room_});
    std::copy(begin(), end(), more.get());
    more_ = std::move(more);
    room_ *= 2;
    begin()[size_++] = item;
  }

  std::unique_ptr<T[]> more_;  // where they are more than `inside`: all of them
  std::uint32_t size_ = 0, room_ = inside;
  union {
    T first_[inside];  // not initialised
  };
};

}  // namespace aiocuda::dataflow
