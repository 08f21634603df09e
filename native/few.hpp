// A list that mostly has one item, or none: the first one needs no memory of its own.
#pragma once
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace aiocuda {

// Always true: the items lie one after another. The first one moves when a second one comes.
template <class T>
class Few {
 public:
  bool empty() const { return size() == 0; }
  std::size_t size() const { return one_ ? 1 : many_.size(); }
  T* begin() { return one_ ? &*one_ : many_.data(); }
  T* end() { return begin() + size(); }
  const T* begin() const { return one_ ? &*one_ : many_.data(); }
  const T* end() const { return begin() + size(); }
  const T& front() const { return *begin(); }

  void push_back(T item) { emplace_back(std::move(item)); }
  template <class... Arguments>
  void emplace_back(Arguments&&... arguments) {
    if (empty()) {
      one_.emplace(std::forward<Arguments>(arguments)...);
      return;
    }
    if (one_) {
      many_.push_back(std::move(*one_));
      one_.reset();
    }
    many_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  // An item of the list; those behind it move up.
  void erase(const T* item) {
    if (one_)
      one_.reset();
    else
      many_.erase(many_.begin() + (item - many_.data()));
  }
  void clear() {
    one_.reset();
    many_.clear();
  }

 private:
  std::optional<T> one_;  // the only item
  std::vector<T> many_;   // where there are several: all of them
};

}  // namespace aiocuda
