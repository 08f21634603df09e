// The recorder of a thread and the accesses of a launch; see recorder.hpp.
#include "checking/recorder.hpp"

#include <algorithm>
#include <utility>

#include "memory/memory.hpp"

namespace aiocuda::emulator::checking {
namespace {

// The accesses that the calling thread has recorded of the blocks that it runs. A small cache finds the page of an
// access. Null there and in the map means a page without memory of the driver's.
class ThreadRecorder {
 public:
  void clear() {
    pages_.clear();
    cache_.fill({});
  }

  void add(std::uintptr_t address, std::size_t bytes, AccessKind kind) {
    while (bytes > 0) {
      const std::uintptr_t page = address / page_bytes;
      const std::size_t first = address % page_bytes;
      const std::size_t taken = std::min(bytes, page_bytes - first);
      Entry& entry = cache_[page % cache_.size()];
      if (entry.page != page) entry = {page, find(page)};
      if (entry.accesses != nullptr) entry.accesses->add(kind, first, first + taken);
      address += taken;
      bytes -= taken;
    }
  }

  Pages take() {
    cache_.fill({});
    return std::exchange(pages_, {});
  }

 private:
  struct Entry {
    std::uintptr_t page = 0;  // the first page of all is never mapped
    PageAccesses* accesses = nullptr;
  };

  PageAccesses* find(std::uintptr_t page) {
    const auto [entry, is_new] = pages_.try_emplace(page);
    if (is_new && memory::may_hold_memory(page * page_bytes, page_bytes))
      entry->second = std::make_unique<PageAccesses>();
    return entry->second.get();
  }

  Pages pages_;
  std::array<Entry, 256> cache_{};
};

// On the heap: the loader has little room for the thread-local variables of a library that is loaded late.
ThreadRecorder& thread_recorder() {
  thread_local const auto recorder = std::make_unique<ThreadRecorder>();
  return *recorder;
}

}  // namespace

void PageAccesses::add(AccessKind kind, std::size_t first, std::size_t last) {
  auto& bits = bits_[kind];
  if (!bits) bits = std::make_unique<Bits>();
  while (first < last) {
    const std::size_t word = first / 64;
    const std::size_t from = first % 64;
    const std::size_t count = std::min<std::size_t>(last - first, 64 - from);
    const std::uint64_t ones = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    (*bits)[word] |= ones << from;
    first += count;
  }
}

void PageAccesses::add(const PageAccesses& other) {
  for (std::size_t kind = 0; kind < access_kinds; ++kind) {
    if (!other.bits_[kind]) continue;
    if (!bits_[kind]) bits_[kind] = std::make_unique<Bits>();
    for (std::size_t word = 0; word < words; ++word) (*bits_[kind])[word] |= (*other.bits_[kind])[word];
  }
}

void PageAccesses::append_to(Accesses& accesses, std::uintptr_t base) const {
  for (std::size_t kind = 0; kind < access_kinds; ++kind) {
    if (!bits_[kind]) continue;
    const auto this_kind = static_cast<AccessKind>(kind);
    bool open = false;
    for (std::size_t word = 0; word < words; ++word) {
      std::uint64_t bits = (*bits_[kind])[word];
      for (std::size_t stronger = 0; stronger < access_kinds; ++stronger) {
        const bool stands_for_it = stronger != kind && covers(static_cast<AccessKind>(stronger), this_kind);
        if (stands_for_it && bits_[stronger]) bits &= ~(*bits_[stronger])[word];
      }
      if (open && bits == ~std::uint64_t{0}) {
        accesses.back().end += 64;
        continue;
      }
      for (std::size_t bit = 0; bit < 64;) {
        const std::uint64_t rest = bits >> bit;
        if ((rest & 1) == 0) {
          open = false;
          if (rest == 0) break;
          bit += static_cast<std::size_t>(__builtin_ctzll(rest));
          continue;
        }
        const std::size_t run = ~rest == 0 ? 64 : static_cast<std::size_t>(__builtin_ctzll(~rest));
        const std::uintptr_t begin = base + word * 64 + bit;
        if (open) {
          accesses.back().end += run;
        } else {
          accesses.push_back({begin, begin + run, this_kind});
        }
        bit += run;
        open = bit == 64;
      }
    }
  }
}

void Recording::begin() { thread_recorder().clear(); }

void Recording::end() {
  Pages recorded = thread_recorder().take();
  const std::lock_guard lock(mutex_);
  for (auto& [page, accesses] : recorded) {
    if (!accesses) continue;
    auto& known = pages_[page];
    if (known) {
      known->add(*accesses);
    } else {
      known = std::move(accesses);
    }
  }
}

Accesses Recording::take() {
  const std::lock_guard lock(mutex_);
  std::vector<std::uintptr_t> order;
  for (const auto& [page, accesses] : pages_) order.push_back(page);
  std::sort(order.begin(), order.end());
  Accesses of_pages;
  for (const std::uintptr_t page : order) pages_[page]->append_to(of_pages, page * page_bytes);
  pages_.clear();
  std::stable_sort(of_pages.begin(), of_pages.end(), [](const Access& a, const Access& b) { return a.kind < b.kind; });
  Accesses joined;
  for (const Access& each : of_pages) {
    if (!joined.empty() && joined.back().kind == each.kind && joined.back().end == each.begin) {
      joined.back().end = each.end;
    } else {
      joined.push_back(each);
    }
  }
  return memory::only_of_memory(joined);
}

void record_access(const void* address, std::uint64_t bytes, abi::AccessKind kind) {
  thread_recorder().add(reinterpret_cast<std::uintptr_t>(address), bytes, kind);
}

}  // namespace aiocuda::emulator::checking
