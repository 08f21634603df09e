// What the checks know of a compiled module: its lines, its shared variables and the gaps behind them, and its other
// variables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checking/line_table.hpp"

namespace aiocuda::emulator::checking {

struct Symbol {
  enum class Kind { shared, gap, other };
  std::uintptr_t begin;  // from the beginning of the thread's or the image's memory
  std::uintptr_t end;
  std::string name;  // readable
  Kind kind;
};

class ImageFacts {
 public:
  explicit ImageFacts(const std::vector<std::byte>& file);

  const LineTable& lines() const noexcept { return lines_; }
  // Variables of which each thread of the host has its own, ascending; among them shared variables, which a block has.
  const std::vector<Symbol>& of_threads() const noexcept { return of_threads_; }
  // All other variables, ascending.
  const std::vector<Symbol>& of_image() const noexcept { return of_image_; }
  // Where the thread's memory has the index of the thread that runs; it tells where that memory begins.
  std::uintptr_t thread_index_offset() const noexcept { return thread_index_offset_; }

  // The last one that begins at or before the offset; null where there is none.
  static const Symbol* find(const std::vector<Symbol>& symbols, std::uintptr_t offset);

 private:
  LineTable lines_;
  std::vector<Symbol> of_threads_;
  std::vector<Symbol> of_image_;
  std::uintptr_t thread_index_offset_ = 0;
};

// "sum(float*)::s" for a mangled name; a name that is none stays as it is.
std::string readable(const std::string& name);

}  // namespace aiocuda::emulator::checking
