// See line_table.hpp.
#include "checking/line_table.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aiocuda::emulator::checking {
namespace {

// DWARF's own numbers.
enum StandardOpcode : unsigned {
  extended = 0,
  copy = 1,
  advance_pc = 2,
  advance_line = 3,
  set_file = 4,
  set_column = 5,
  negate_stmt = 6,
  set_basic_block = 7,
  const_add_pc = 8,
  fixed_advance_pc = 9,
  set_prologue_end = 10,
  set_epilogue_begin = 11,
  set_isa = 12
};
enum ExtendedOpcode : unsigned { end_sequence = 1, set_address = 2 };
enum Content : std::uint64_t { content_path = 1, content_directory = 2 };
enum Form : std::uint64_t {
  form_data2 = 0x05,
  form_data4 = 0x06,
  form_data8 = 0x07,
  form_string = 0x08,
  form_data1 = 0x0b,
  form_strp = 0x0e,
  form_udata = 0x0f,
  form_data16 = 0x1e,
  form_line_strp = 0x1f
};

// Reads on, and remembers when it has come to the end of what there is.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool good() const noexcept { return good_; }
  bool at_end() const noexcept { return !good_ || at_ >= bytes_.size(); }
  std::size_t at() const noexcept { return at_; }

  template <typename Value>
  Value read() {
    Value value{};
    if (bytes_.size() - at_ < sizeof value) {
      good_ = false;
      at_ = bytes_.size();
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::uint64_t unsigned_leb() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; good_; shift += 7) {
      const auto byte = read<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }

  std::int64_t signed_leb() {
    std::uint64_t value = 0;
    unsigned shift = 0;
    while (good_) {
      const auto byte = read<std::uint8_t>();
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      shift += 7;
      if ((byte & 0x80) != 0) continue;
      if ((byte & 0x40) != 0 && shift < 64) value |= ~std::uint64_t{0} << shift;
      break;
    }
    return static_cast<std::int64_t>(value);
  }

  std::string string() {
    std::string text;
    while (good_) {
      const auto c = read<char>();
      if (c == '\0') break;
      text += c;
    }
    return text;
  }

  void skip(std::uint64_t count) {
    if (count > bytes_.size() - at_) {
      good_ = false;
      count = bytes_.size() - at_;
    }
    at_ += count;
  }

  std::span<const std::byte> take(std::uint64_t count) {
    const std::size_t from = at_;
    skip(count);
    return bytes_.subspan(from, at_ - from);
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

std::string string_at(std::span<const std::byte> strings, std::uint64_t offset) {
  if (offset >= strings.size()) return {};
  return Cursor(strings.subspan(offset)).string();
}

std::string joined(const std::string& directory, const std::string& name) {
  return directory.empty() || directory == "." || name.starts_with('/') ? name : directory + "/" + name;
}

struct File {
  std::string name;
  std::uint64_t directory = 0;
};

}  // namespace

// Of one unit of the table: its header, then its program, which makes the rows.
class LineTable::Reader {
 public:
  Reader(LineTable& table, const LineSections& sections, std::span<const std::byte> unit)
      : table_(table), sections_(sections), cursor_(unit) {}

  void run() {
    version_ = cursor_.read<std::uint16_t>();
    if (version_ < 2 || version_ > 5) return;
    if (version_ >= 5) cursor_.skip(2);  // sizes of an address and of a segment's selector
    const auto header_bytes = cursor_.read<std::uint32_t>();
    const std::size_t program = cursor_.at() + header_bytes;
    instruction_bytes_ = cursor_.read<std::uint8_t>();
    if (version_ >= 4) cursor_.skip(1);                   // operations of an instruction
    cursor_.skip(1);                                      // whether a row is a statement, at first
    const auto line_base = cursor_.read<std::uint8_t>();  // a signed byte
    line_base_ = line_base < 128 ? line_base : line_base - 256;
    line_range_ = cursor_.read<std::uint8_t>();
    opcode_base_ = cursor_.read<std::uint8_t>();
    for (unsigned each = 1; each < opcode_base_; ++each) operand_counts_.push_back(cursor_.read<std::uint8_t>());
    if (line_range_ == 0 || opcode_base_ == 0 || !cursor_.good()) return;
    if (version_ >= 5) {
      read_files();
    } else {
      read_older_files();
    }
    if (!cursor_.good() || program < cursor_.at()) return;
    cursor_.skip(program - cursor_.at());
    while (!cursor_.at_end()) step();
  }

 private:
  void read_older_files() {
    std::vector<std::string> directories{""};
    for (std::string name = cursor_.string(); !name.empty(); name = cursor_.string()) directories.push_back(name);
    numbers_.push_back(0);
    for (std::string name = cursor_.string(); !name.empty(); name = cursor_.string()) {
      const std::uint64_t directory = cursor_.unsigned_leb();
      cursor_.unsigned_leb();  // when it was changed
      cursor_.unsigned_leb();  // its length
      add_file({std::move(name), directory}, directories);
    }
  }

  void read_files() {
    std::vector<std::string> directories;
    for (const File& each : entries()) directories.push_back(each.name);
    for (const File& each : entries()) add_file(each, directories);
  }

  std::vector<File> entries() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> format(cursor_.read<std::uint8_t>());
    for (auto& [content, form] : format) {
      content = cursor_.unsigned_leb();
      form = cursor_.unsigned_leb();
    }
    std::vector<File> found;
    const std::uint64_t count = cursor_.unsigned_leb();
    if (format.empty()) return found;  // whatever the number of entries is
    for (std::uint64_t each = 0; each < count && cursor_.good(); ++each) {
      File file;
      for (const auto& [content, form] : format) {
        if (content == content_path) {
          file.name = read_string(form);
        } else {
          const std::uint64_t value = read_number(form);
          if (content == content_directory) file.directory = value;
        }
      }
      found.push_back(std::move(file));
    }
    return found;
  }

  std::string read_string(std::uint64_t form) {
    switch (form) {
      case form_string:
        return cursor_.string();
      case form_line_strp:
        return string_at(sections_.line_strings, cursor_.read<std::uint32_t>());
      case form_strp:
        return string_at(sections_.strings, cursor_.read<std::uint32_t>());
      default:
        cursor_.skip(~std::uint64_t{0});
        return {};
    }
  }

  std::uint64_t read_number(std::uint64_t form) {
    switch (form) {
      case form_data1:
        return cursor_.read<std::uint8_t>();
      case form_data2:
        return cursor_.read<std::uint16_t>();
      case form_data4:
        return cursor_.read<std::uint32_t>();
      case form_data8:
        return cursor_.read<std::uint64_t>();
      case form_udata:
        return cursor_.unsigned_leb();
      case form_data16:
        cursor_.skip(16);
        return 0;
      case form_string:
      case form_strp:
      case form_line_strp:
        read_string(form);
        return 0;
      default:
        cursor_.skip(~std::uint64_t{0});
        return 0;
    }
  }

  void add_file(const File& file, const std::vector<std::string>& directories) {
    const std::string directory = file.directory != 0 && file.directory < directories.size()
                                      ? directories[static_cast<std::size_t>(file.directory)]
                                      : std::string{};
    numbers_.push_back(table_.file_number(joined(directory, file.name)));
  }

  void step() {
    const unsigned opcode = cursor_.read<std::uint8_t>();
    if (opcode >= opcode_base_) {
      const unsigned adjusted = opcode - opcode_base_;
      offset_ += std::uintptr_t{adjusted / line_range_} * instruction_bytes_;
      line_ += line_base_ + static_cast<int>(adjusted % line_range_);
      add_row(false);
      return;
    }
    switch (opcode) {
      case extended:
        return extended_step();
      case copy:
        return add_row(false);
      case advance_pc:
        offset_ += cursor_.unsigned_leb() * instruction_bytes_;
        return;
      case advance_line:
        line_ += cursor_.signed_leb();
        return;
      case set_file:
        file_ = cursor_.unsigned_leb();
        return;
      case const_add_pc:
        offset_ += std::uintptr_t{(255u - opcode_base_) / line_range_} * instruction_bytes_;
        return;
      case fixed_advance_pc:
        offset_ += cursor_.read<std::uint16_t>();
        return;
      default:
        for (unsigned each = 0; each < operand_counts_[opcode - 1]; ++each) cursor_.unsigned_leb();
        return;
    }
  }

  void extended_step() {
    const std::uint64_t bytes = cursor_.unsigned_leb();
    Cursor inner(cursor_.take(bytes));
    const unsigned opcode = inner.read<std::uint8_t>();
    if (opcode == set_address) {
      offset_ = inner.read<std::uint64_t>();
    } else if (opcode == end_sequence) {
      add_row(true);
      offset_ = 0;
      file_ = 1;
      line_ = 1;
    }
  }

  void add_row(bool ends) {
    const std::uint32_t file = file_ < numbers_.size() ? numbers_[static_cast<std::size_t>(file_)] : 0;
    table_.rows_.push_back({offset_, file, static_cast<std::uint32_t>(line_), ends});
  }

  LineTable& table_;
  const LineSections& sections_;
  Cursor cursor_;
  unsigned version_ = 0;
  unsigned instruction_bytes_ = 1;
  int line_base_ = 0;
  unsigned line_range_ = 0;
  unsigned opcode_base_ = 0;
  std::vector<unsigned> operand_counts_;
  std::vector<std::uint32_t> numbers_;  // of the unit's files, among all

  std::uintptr_t offset_ = 0;
  std::uint64_t file_ = 1;
  std::int64_t line_ = 1;
};

LineTable::LineTable(const LineSections& sections) {
  files_.emplace_back();
  is_ours_.push_back(true);
  Cursor units(sections.lines);
  while (!units.at_end()) {
    const auto bytes = units.read<std::uint32_t>();
    if (bytes >= 0xfffffff0u) return;  // of the 64-bit format, which nobody writes
    Reader(*this, sections, units.take(bytes)).run();
  }
  std::vector<std::size_t> counts(files_.size());
  for (const Row& row : rows_) counts[row.file] += is_ours_[row.file] ? 0 : 1;
  main_file_ = static_cast<std::size_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

std::uint32_t LineTable::file_number(const std::string& name) {
  const auto known = std::find(files_.begin(), files_.end(), name);
  if (known != files_.end()) return static_cast<std::uint32_t>(known - files_.begin());
  files_.push_back(name);
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  is_ours_.push_back(has("aiocuda_cuda_cpp/") || has("cuda_cpp/runtime/") || name.ends_with("<module>"));
  return static_cast<std::uint32_t>(files_.size() - 1);
}

SourceLine LineTable::find(std::uintptr_t offset) const {
  std::size_t sequence = 0;
  for (std::size_t end = 0; end < rows_.size(); ++end) {
    if (!rows_[end].ends_sequence) continue;
    if (rows_[sequence].offset <= offset && offset < rows_[end].offset) {
      std::size_t at = end;
      while (at > sequence && rows_[at].offset > offset) --at;
      while (at > sequence && (is_ours_[rows_[at].file] || rows_[at].line == 0)) --at;
      if (is_ours_[rows_[at].file]) return {};
      return {files_[rows_[at].file], rows_[at].line};
    }
    sequence = end + 1;
  }
  return {};
}

}  // namespace aiocuda::emulator::checking
