// See image_facts.hpp. An offset that the file names is checked against its length before anything is read there.
#include "checking/image_facts.hpp"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>

namespace aiocuda::emulator::checking {
namespace {

template <typename Value>
bool read(std::span<const std::byte> bytes, std::size_t offset, Value& value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof value) return false;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return true;
}

std::string_view text_at(std::span<const std::byte> bytes, std::size_t offset) {
  if (offset >= bytes.size()) return {};
  const auto* const text = reinterpret_cast<const char*>(bytes.data()) + offset;
  return {text, strnlen(text, bytes.size() - offset)};
}

struct Section {
  Elf64_Shdr header;
  std::string_view name;
  std::span<const std::byte> content;
};

std::vector<Section> sections_of(std::span<const std::byte> file) {
  std::vector<Section> found;
  Elf64_Ehdr header;
  if (!read(file, 0, header)) return found;
  for (unsigned each = 0; each < header.e_shnum; ++each) {
    Section section{};
    if (!read(file, header.e_shoff + std::size_t{each} * header.e_shentsize, section.header)) return {};
    const auto& [offset, bytes] = std::pair(section.header.sh_offset, section.header.sh_size);
    if (section.header.sh_type != SHT_NOBITS && offset <= file.size() && bytes <= file.size() - offset)
      section.content = file.subspan(offset, bytes);
    found.push_back(section);
  }
  if (header.e_shstrndx >= found.size()) return {};
  for (Section& each : found) each.name = text_at(found[header.e_shstrndx].content, each.header.sh_name);
  return found;
}

constexpr std::string_view dynamic_mark = "aiocuda_dynamic_";  // before the name of a reference to dynamic memory

Symbol::Kind kind_of(std::string_view name) {
  if (name.find("aiocuda_gap_") != std::string_view::npos) return Symbol::Kind::gap;
  for (const std::string_view place : {"threadIdx", "blockIdx", "blockDim", "gridDim"}) {
    if (name == place) return Symbol::Kind::other;
  }
  // A name of ours, or what C++ keeps beside a variable that it initialises.
  const bool is_ours = name.find("aiocuda") != std::string_view::npos || name.starts_with("_ZGV");
  return is_ours ? Symbol::Kind::other : Symbol::Kind::shared;
}

}  // namespace

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(::abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

ImageFacts::ImageFacts(const std::vector<std::byte>& file) {
  LineSections lines;
  const std::vector<Section> sections = sections_of(file);
  for (const Section& section : sections) {
    if (section.name == ".debug_line") lines.lines = section.content;
    if (section.name == ".debug_line_str") lines.line_strings = section.content;
    if (section.name == ".debug_str") lines.strings = section.content;
    if (section.header.sh_type != SHT_SYMTAB || section.header.sh_link >= sections.size()) continue;
    const auto names = sections[section.header.sh_link].content;
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= section.content.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      read(section.content, at, symbol);
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0 || (type != STT_TLS && type != STT_OBJECT)) continue;
      const std::string name(text_at(names, symbol.st_name));
      if (type == STT_TLS && name == "threadIdx") thread_index_offset_ = symbol.st_value;
      auto& list = type == STT_TLS ? of_threads_ : of_image_;
      list.push_back({symbol.st_value, symbol.st_value + symbol.st_size, readable(name), kind_of(name)});
    }
  }
  lines_ = LineTable(lines);
  // References at namespace scope to dynamic shared memory are no shared variables themselves.
  std::set<std::string> references;
  for (const Symbol& each : of_threads_) {
    std::string name = each.name;
    const std::size_t mark = name.find(dynamic_mark);
    if (mark != std::string::npos) references.insert(name.erase(mark, dynamic_mark.size()));
  }
  for (Symbol& each : of_threads_) {
    if (references.contains(each.name)) each.kind = Symbol::Kind::other;
  }
  for (auto* const list : {&of_threads_, &of_image_}) {
    std::sort(list->begin(), list->end(), [](const Symbol& a, const Symbol& b) { return a.begin < b.begin; });
  }
}

const Symbol* ImageFacts::find(const std::vector<Symbol>& symbols, std::uintptr_t offset) {
  const auto after = std::upper_bound(symbols.begin(), symbols.end(), offset,
                                      [](std::uintptr_t at, const Symbol& each) { return at < each.begin; });
  return after == symbols.begin() ? nullptr : &*std::prev(after);
}

}  // namespace aiocuda::emulator::checking
