// What is rarely there. Where it is destroyed only the question whether it is there is inlined, so that code that is
// executed each time takes few lines of the instruction cache.
#pragma once
#include <memory>

namespace aiocuda::dataflow {

struct DeleteRare {
  template <class T>
  [[gnu::noinline]] void operator()(T* rare) const {
    const std::unique_ptr<T> last(rare);
  }
};

template <class T>
using Rare = std::unique_ptr<T, DeleteRare>;

}  // namespace aiocuda::dataflow
