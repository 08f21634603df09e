// Which line of the program an instruction of a compiled module belongs to: the line table of its debugging information
// (DWARF 4 and 5), read as far as that needs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checking/kernel_reports.hpp"

namespace aiocuda::emulator::checking {

// The sections of an image that hold it; empty where the image has none.
struct LineSections {
  std::span<const std::byte> lines;         // .debug_line
  std::span<const std::byte> line_strings;  // .debug_line_str
  std::span<const std::byte> strings;       // .debug_str
};

class LineTable {
 public:
  LineTable() = default;
  // What it does not understand it leaves out.
  explicit LineTable(const LineSections& sections);

  // The line of the instruction at an offset from the image's address. Of code of the device headers, which the
  // compiler put into a function of the program, it is the line of the program just before.
  SourceLine find(std::uintptr_t offset) const;
  // The file that most of the program is from.
  const std::string& main_file() const noexcept { return files_.empty() ? none_ : files_[main_file_]; }

 private:
  struct Row {
    std::uintptr_t offset;
    std::uint32_t file;
    std::uint32_t line;
    bool ends_sequence;
  };
  class Reader;

  std::uint32_t file_number(const std::string& name);

  std::vector<Row> rows_;  // sequence after sequence, each ascending
  std::vector<std::string> files_;
  std::string none_;
  std::size_t main_file_ = 0;
  std::vector<bool> is_ours_;  // of each file: no text of the program's
};

}  // namespace aiocuda::emulator::checking
