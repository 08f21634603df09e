// Line tables of DWARF 4 and 5, written by hand as the standard says, and damaged ones.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string_view>

#include "checking/line_table.hpp"

using namespace aiocuda::emulator::checking;

namespace {

class Bytes {
 public:
  template <typename Value>
  Bytes& add(Value value) {
    const auto* const first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
    return *this;
  }
  Bytes& byte(unsigned value) { return add(static_cast<std::uint8_t>(value)); }
  Bytes& text(std::string_view value) {
    for (const char c : value) byte(static_cast<unsigned char>(c));
    return byte(0);
  }
  Bytes& append(const Bytes& other) {
    bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
    return *this;
  }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

constexpr unsigned opcode_base = 13;
constexpr int line_base = -5;
constexpr unsigned line_range = 14;

// The row that one byte makes: on by so many bytes and lines.
unsigned special(unsigned bytes, int lines) {
  return static_cast<unsigned>(lines - line_base) + line_range * bytes + opcode_base;
}

Bytes program(std::uint64_t at) {
  Bytes made;
  made.byte(0).byte(9).byte(2).add(at);           // the address
  made.byte(3).byte(9).byte(1);                   // on by 9 lines, to line 10; a row
  made.byte(special(4, 1));                       // 4: line 11
  made.byte(4).byte(2);                           // the second file
  made.byte(special(4, 2));                       // 8: line 13 of it
  made.byte(4).byte(1);                           // back
  made.byte(3).byte(0x7e);                        // back by 2 lines
  made.byte(2).byte(0x88).byte(0x01);             // on by 136 bytes
  made.byte(1);                                   // 144: line 11
  made.byte(2).byte(16).byte(0).byte(1).byte(1);  // 160: the end
  return made;
}

Bytes unit(unsigned version, const Bytes& files, const Bytes& rows) {
  Bytes rest;
  rest.byte(1);                    // bytes of an instruction
  if (version >= 4) rest.byte(1);  // operations of an instruction
  rest.byte(1).byte(static_cast<std::uint8_t>(line_base)).byte(line_range).byte(opcode_base);
  for (const unsigned count : {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}) rest.byte(count);
  rest.append(files);
  Bytes body;
  body.add(static_cast<std::uint16_t>(version));
  if (version >= 5) body.byte(8).byte(0);
  body.add(static_cast<std::uint32_t>(rest.size()));
  body.append(rest).append(rows);
  Bytes made;
  made.add(static_cast<std::uint32_t>(body.size())).append(body);
  return made;
}

Bytes files_of_4() {
  Bytes files;
  files.text("/headers").byte(0);
  files.text("k.cu").byte(0).byte(0).byte(0);
  files.text("aiocuda_cuda_cpp/block.hpp").byte(1).byte(0).byte(0);
  return files.byte(0);
}

LineTable table_of_4() {
  Bytes lines = unit(4, files_of_4(), program(0x1000));
  return LineTable({lines.bytes(), {}, {}});
}

}  // namespace

TEST_CASE("a table of version 4 tells the line of each instruction") {
  const LineTable table = table_of_4();
  CHECK(table.find(0x1000).text() == "k.cu:10");
  CHECK(table.find(0x1003).text() == "k.cu:10");
  CHECK(table.find(0x1004).text() == "k.cu:11");
  CHECK(table.find(0x1000 + 144).text() == "k.cu:11");
  CHECK(table.find(0x1000 + 159).text() == "k.cu:11");
  CHECK(table.main_file() == "k.cu");
}

TEST_CASE("outside of all sequences no line is known") {
  const LineTable table = table_of_4();
  CHECK(table.find(0xfff).file.empty());
  CHECK(table.find(0x1000 + 160).file.empty());
  CHECK(LineTable().find(0).file.empty());
  CHECK(LineTable().main_file().empty());
}

TEST_CASE("code of the device headers counts as the program's line before it") {
  CHECK(table_of_4().find(0x1008).text() == "k.cu:11");
}

TEST_CASE("a table of version 5 has its names in sections of strings") {
  Bytes strings;
  strings.text("").text("/home").text("k.cu");  // at 0, 1 and 7
  Bytes more;
  more.text("b.hpp");
  Bytes files;
  files.byte(1).byte(1).byte(0x1f);  // directories: a path in .debug_line_str
  files.byte(2).add(std::uint32_t{1}).add(std::uint32_t{1});
  files.byte(3).byte(1).byte(0x0e).byte(2).byte(0x0b).byte(5).byte(0x1e);  // files: path, directory, checksum
  files.byte(3);
  for (const std::uint32_t name : {0u, 0u, 0u}) {
    files.add(name).byte(0);
    for (int each = 0; each < 16; ++each) files.byte(0);
  }
  Bytes lines = unit(5, files, program(0x40));
  const LineTable table({lines.bytes(), strings.bytes(), more.bytes()});
  CHECK(table.find(0x40).text() == "b.hpp:10");

  Bytes named;
  named.byte(1).byte(1).byte(0x1f).byte(1).add(std::uint32_t{1});
  named.byte(2).byte(1).byte(0x1f).byte(2).byte(0x0f).byte(3);
  named.add(std::uint32_t{7}).byte(0).add(std::uint32_t{7}).byte(0).add(std::uint32_t{7}).byte(0);
  Bytes other = unit(5, named, program(0x40));
  CHECK(LineTable({other.bytes(), strings.bytes(), {}}).find(0x44).text() == "k.cu:11");
}

TEST_CASE("units that are not understood are left out, and those behind them are read") {
  Bytes lines = unit(9, files_of_4(), program(0x500));
  lines.append(unit(4, files_of_4(), program(0x1000)));
  const LineTable table({lines.bytes(), {}, {}});
  CHECK(table.find(0x500).file.empty());
  CHECK(table.find(0x1000).text() == "k.cu:10");
}

TEST_CASE("entries without a form are none, however many there are") {
  Bytes files;
  files.byte(0);
  for (int each = 0; each < 9; ++each) files.byte(0xff);
  files.byte(1);
  Bytes lines = unit(5, files.byte(0).byte(0), program(0x1000));
  CHECK(LineTable({lines.bytes(), {}, {}}).find(0x1000).file.empty());
}

TEST_CASE("a table that ends anywhere, or has any byte wrong, is read to where it makes sense") {
  const Bytes whole = unit(4, files_of_4(), program(0x1000));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Bytes part = whole;
    part.bytes().resize(size);
    CHECK(LineTable({part.bytes(), {}, {}}).find(0x1000 + 160).file.empty());
  }
  std::mt19937 random(7);
  for (int each = 0; each < 2000; ++each) {
    Bytes damaged = whole;
    damaged.bytes()[random() % damaged.size()] = static_cast<std::byte>(random() % 256);
    const SourceLine line = LineTable({damaged.bytes(), {}, {}}).find(0x1000);
    CHECK(line.file.size() <= whole.size());
  }
}
