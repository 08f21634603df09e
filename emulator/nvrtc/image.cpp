// See image.hpp. The ELF structures are those of the machine this runs on.
#include "image.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view addresses_prefix = "aiocuda_addresses_";
constexpr std::string_view shared_prefix = "aiocuda_static_shared_";
#if defined(__aarch64__)
constexpr unsigned host_machine = EM_AARCH64;
#else
constexpr unsigned host_machine = EM_X86_64;
#endif

class Elf {
 public:
  explicit Elf(std::string& image) : image_(image) {
    const auto header = read<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
      return;
    for (std::size_t i = 0; i < header->e_shnum; ++i) {
      const auto section = read<Elf64_Shdr>(header->e_shoff + i * header->e_shentsize);
      if (!section) return;
      sections_.push_back(*section);
    }
    valid_ = true;
  }

  bool valid() const { return valid_; }

  template <class T>
  std::optional<T> read(std::uint64_t offset) const {
    if (offset > image_.size() || image_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, image_.data() + offset, sizeof value);
    return value;
  }

  // Calls f(symbol, name) for the symbols of the tables of one type.
  template <class F>
  void each_symbol(std::uint32_t table_type, F f) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != table_type || section.sh_link >= sections_.size()) continue;
      for (std::uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        if (const auto symbol = read<Elf64_Sym>(section.sh_offset + i * sizeof(Elf64_Sym))) {
          f(*symbol, text(sections_[section.sh_link].sh_offset + symbol->st_name));
        }
      }
    }
  }

  std::optional<Elf64_Sym> find(std::string_view wanted) const {
    std::optional<Elf64_Sym> found;
    each_symbol(SHT_DYNSYM, [&](const Elf64_Sym& symbol, std::string_view name) {
      if (name == wanted && symbol.st_shndx != SHN_UNDEF) found = symbol;
    });
    return found;
  }

  // The exported symbol that the relocated pointer at `address` will point at.
  std::string name_pointed_at(std::uint64_t address) const {
    std::string found;
    for (const Elf64_Shdr& section : sections_) {
      // Those that the loader applies; the others are the linker's.
      if (section.sh_type != SHT_RELA || section.sh_link >= sections_.size() ||
          sections_[section.sh_link].sh_type != SHT_DYNSYM)
        continue;
      for (std::uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Rela); ++i) {
        const auto relocation = read<Elf64_Rela>(section.sh_offset + i * sizeof(Elf64_Rela));
        if (!relocation || relocation->r_offset != address) continue;
        const std::uint64_t index = ELF64_R_SYM(relocation->r_info);
        std::uint64_t position = 0;
        each_symbol(SHT_DYNSYM, [&](const Elf64_Sym& symbol, std::string_view name) {
          const bool is_target = index != 0 ? position == index
                                            : symbol.st_value == static_cast<std::uint64_t>(relocation->r_addend) &&
                                                  symbol.st_shndx != SHN_UNDEF && is_code_or_data(symbol);
          if (is_target) found = name;
          ++position;
        });
      }
    }
    return found;
  }

  // Calls f(address, symbol, addend) for what the linker put into code.
  template <class F>
  void each_use_in_code(F f) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_RELA || section.sh_link >= sections_.size() || section.sh_info >= sections_.size())
        continue;
      const Elf64_Shdr& symbols = sections_[section.sh_link];
      if (symbols.sh_type != SHT_SYMTAB || (sections_[section.sh_info].sh_flags & SHF_EXECINSTR) == 0) continue;
      for (std::uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Rela); ++i) {
        const auto relocation = read<Elf64_Rela>(section.sh_offset + i * sizeof(Elf64_Rela));
        if (!relocation) return;
        const std::uint64_t index = ELF64_R_SYM(relocation->r_info);
        if (const auto symbol = read<Elf64_Sym>(symbols.sh_offset + index * sizeof(Elf64_Sym)))
          f(relocation->r_offset, *symbol, relocation->r_addend);
      }
    }
  }

  // The place of an initialised variable's bytes in the file.
  std::optional<std::uint64_t> file_offset(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx >= sections_.size()) return std::nullopt;
    const Elf64_Shdr& section = sections_[symbol.st_shndx];
    if (section.sh_type == SHT_NOBITS) return std::nullopt;
    return section.sh_offset + (symbol.st_value - section.sh_addr);
  }

  void write(std::uint64_t offset, std::uint64_t value) {
    if (offset <= image_.size() && image_.size() - offset >= sizeof value) {
      std::memcpy(image_.data() + offset, &value, sizeof value);
    }
  }

 private:
  static bool is_code_or_data(const Elf64_Sym& symbol) {
    return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC || ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT;
  }

  std::string_view text(std::uint64_t offset) const {
    if (offset >= image_.size()) return {};
    const std::string_view rest = std::string_view(image_).substr(offset);
    return rest.substr(0, rest.find('\0'));
  }

  std::string& image_;
  std::vector<Elf64_Shdr> sections_;
  bool valid_ = false;
};

// The mangled name of a variable inside a function begins with the function's.
std::string local_prefix(const std::string& lowered_name) {
  if (lowered_name.starts_with("_Z")) return "_ZZ" + lowered_name.substr(2) + "E";
  return "_ZZ" + std::to_string(lowered_name.size()) + lowered_name + "E";
}

// Which functions of an image use which others, and which variables of threads, as shared variables are.
class Uses {
 public:
  explicit Uses(const Elf& elf) {
    elf.each_symbol(SHT_SYMTAB, [&](const Elf64_Sym& symbol, std::string_view name) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) return;
      functions_[symbol.st_value].end = symbol.st_value + symbol.st_size;
      names_.emplace(name, symbol.st_value);
    });
    elf.each_use_in_code([&](std::uint64_t at, const Elf64_Sym& symbol, std::int64_t addend) {
      Function* const user = find(at);
      if (user == nullptr || symbol.st_shndx == SHN_UNDEF) return;
      const unsigned type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_TLS) user->variables.insert(symbol.st_value);
      if (type == STT_FUNC) user->functions.insert(symbol.st_value);
      if (type == STT_SECTION) user->functions.insert(symbol.st_value + static_cast<std::uint64_t>(addend) + bias);
    });
  }

  // The offsets of the variables that the function and those it uses use. Nothing where it is not known.
  std::optional<std::set<std::uint64_t>> variables_of(std::string_view name) {
    const auto begin = names_.find(name);
    if (begin == names_.end()) return std::nullopt;
    std::set<std::uint64_t> variables;
    std::set<const Function*> seen;
    std::vector<std::uint64_t> next = {begin->second};
    while (!next.empty()) {
      const Function* const function = find(next.back());
      next.pop_back();
      if (function == nullptr || !seen.insert(function).second) continue;
      variables.insert(function->variables.begin(), function->variables.end());
      next.insert(next.end(), function->functions.begin(), function->functions.end());
    }
    return variables;
  }

 private:
  struct Function {
    std::uint64_t end = 0;
    std::set<std::uint64_t> variables;
    std::set<std::uint64_t> functions;
  };
  // Of the addresses in code: x86-64 counts from the end of a field of four bytes.
  static constexpr std::uint64_t bias = host_machine == EM_X86_64 ? 4 : 0;

  Function* find(std::uint64_t address) {
    auto found = functions_.upper_bound(address);
    if (found == functions_.begin()) return nullptr;
    --found;
    return address < found->second.end ? &found->second : nullptr;
  }

  std::map<std::uint64_t, Function> functions_;  // by where they begin
  std::map<std::string_view, std::uint64_t> names_;
};

}  // namespace

ImageContents complete_image(std::string& image) {
  ImageContents contents;
  Elf elf(image);
  if (!elf.valid()) return contents;
  struct Table {
    std::uint64_t addresses;
    Elf64_Sym shared;
    std::size_t first;
    std::size_t count;
  };
  std::vector<Table> tables;
  elf.each_symbol(SHT_DYNSYM, [&](const Elf64_Sym& symbol, std::string_view name) {
    if (!name.starts_with(addresses_prefix) || symbol.st_shndx == SHN_UNDEF) return;
    const auto shared = elf.find(std::string(shared_prefix) + std::string(name.substr(addresses_prefix.size())));
    if (!shared) return;
    tables.push_back({symbol.st_value, *shared, contents.lowered_names.size(), symbol.st_size / sizeof(void*)});
    for (std::size_t i = 0; i < tables.back().count; ++i) {
      contents.lowered_names.push_back(elf.name_pointed_at(symbol.st_value + i * sizeof(void*)));
    }
  });
  const std::size_t count = contents.lowered_names.size();
  contents.static_shared_bytes.assign(count, 0);
  Uses uses(elf);
  std::vector<std::optional<std::set<std::uint64_t>>> used;
  for (const std::string& name : contents.lowered_names) used.push_back(uses.variables_of(name));
  elf.each_symbol(SHT_SYMTAB, [&](const Elf64_Sym& symbol, std::string_view name) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || !name.starts_with("_ZZ") ||
        name.find("aiocuda") != std::string_view::npos) {
      return;
    }
    std::vector<bool> uses_it(count, false);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& kernel = contents.lowered_names[i];
      uses_it[i] = (used[i] && used[i]->contains(symbol.st_value)) ||
                   (!kernel.empty() && name.starts_with(local_prefix(kernel)));
    }
    // If no kernel is seen to use it, any kernel may: a pointer to a function does not show whom it calls.
    const bool is_seen = std::find(uses_it.begin(), uses_it.end(), true) != uses_it.end();
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_seen || uses_it[i]) contents.static_shared_bytes[i] += symbol.st_size;
    }
  });
  for (const Table& table : tables) {
    const auto offset = elf.file_offset(table.shared);
    for (std::size_t i = 0; offset && i < table.count; ++i) {
      elf.write(*offset + i * sizeof(std::uint64_t), contents.static_shared_bytes[table.first + i]);
    }
  }
  contents.valid = true;
  return contents;
}

std::optional<ObjectSymbols> symbols_of_object(std::string& object) {
  const Elf elf(object);
  const auto header = elf.valid() ? elf.read<Elf64_Ehdr>(0) : std::nullopt;
  if (!header || header->e_type != ET_REL || header->e_machine != host_machine) return std::nullopt;
  ObjectSymbols symbols;
  elf.each_symbol(SHT_SYMTAB, [&](const Elf64_Sym& symbol, std::string_view name) {
    const unsigned binding = ELF64_ST_BIND(symbol.st_info);
    if (binding == STB_LOCAL || name.empty()) return;
    auto& list = symbol.st_shndx == SHN_UNDEF ? symbols.wanted : binding == STB_WEAK ? symbols.shared : symbols.defined;
    list.emplace_back(name);
  });
  return symbols;
}

bool is_shared_object(std::string& image) {
  const Elf elf(image);
  const auto header = elf.valid() ? elf.read<Elf64_Ehdr>(0) : std::nullopt;
  return header && header->e_type == ET_DYN && header->e_machine == host_machine;
}

}  // namespace aiocuda::emulator::nvrtc
