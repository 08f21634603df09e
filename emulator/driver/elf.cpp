// Reads ELF headers; see elf.hpp. Whatever is read at an offset that the file itself names is checked
// against the file's length first.
#include "elf.hpp"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>

namespace aiocuda::emulator {
namespace {

#if defined(__x86_64__)
constexpr unsigned host_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr unsigned host_machine = EM_AARCH64;
#else
#error "the emulated driver loads modules for x86-64 and aarch64; add this machine's ELF number"
#endif

constexpr unsigned machine_cuda = 190;
constexpr std::uint32_t fat_binary_wrapper_magic = 0x466243b1;
constexpr std::uint32_t fat_binary_magic = 0xba55ed50;

template <typename Value>
std::optional<Value> read(const std::vector<std::byte>& file, std::size_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// PTX is text whose first directive, after comments and white space, is `.version`.
bool looks_like_ptx(const char* text) {
  constexpr std::size_t most_looked_at = 64 * 1024;
  const char* const end = text + strnlen(text, most_looked_at);
  while (text < end) {
    if (std::isspace(static_cast<unsigned char>(*text)) != 0) {
      ++text;
    } else if (std::strncmp(text, "//", 2) == 0) {
      text = std::find(text, end, '\n');
    } else if (std::strncmp(text, "/*", 2) == 0) {
      const char* close = std::strstr(text, "*/");
      if (close == nullptr) return false;
      text = close + 2;
    } else {
      return std::strncmp(text, ".version", 8) == 0;
    }
  }
  return false;
}

}  // namespace

ImageKind kind_of_image(const void* image) {
  const char* const text = static_cast<const char*>(image);
  if (std::strncmp(text, ELFMAG, SELFMAG) == 0) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, EI_NIDENT);
    if (header.e_ident[EI_CLASS] != ELFCLASS64) return ImageKind::unknown;
    std::memcpy(&header, image, sizeof header);
    if (header.e_machine == machine_cuda) return ImageKind::gpu_binary;
    if (header.e_machine != host_machine) return ImageKind::unknown;
    return header.e_type == ET_DYN   ? ImageKind::host_object
           : header.e_type == ET_REL ? ImageKind::relocatable
                                     : ImageKind::unknown;
  }
  // Only as much is read as is there: a short text ends with its zero byte.
  if (strnlen(text, sizeof(std::uint32_t)) == sizeof(std::uint32_t)) {
    std::uint32_t magic;
    std::memcpy(&magic, text, sizeof magic);
    if (magic == fat_binary_wrapper_magic || magic == fat_binary_magic) return ImageKind::gpu_binary;
  }
  return looks_like_ptx(text) ? ImageKind::ptx : ImageKind::unknown;
}

std::size_t elf_bytes(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_ehsize != sizeof header || (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr))) {
    return 0;
  }
  std::size_t end =
      std::max<std::size_t>(sizeof header, header.e_shoff + std::size_t{header.e_shentsize} * header.e_shnum);
  const auto* const bytes = static_cast<const std::byte*>(image);
  for (unsigned each = 0; each < header.e_phnum; ++each) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes + header.e_phoff + std::size_t{each} * header.e_phentsize, sizeof segment);
    end = std::max<std::size_t>(end, segment.p_offset + segment.p_filesz);
  }
  constexpr std::size_t most = std::size_t{1} << 32;
  return end <= most ? end : 0;
}

std::unordered_map<std::string, ElfVariable> elf_variables(const std::vector<std::byte>& file) {
  std::unordered_map<std::string, ElfVariable> variables;
  const auto header = read<Elf64_Ehdr>(file, 0);
  if (!header) return variables;
  const auto section = [&](std::size_t index) {
    return read<Elf64_Shdr>(file, header->e_shoff + index * header->e_shentsize);
  };
  for (unsigned each = 0; each < header->e_shnum; ++each) {
    const auto symbols = section(each);
    if (!symbols || symbols->sh_type != SHT_DYNSYM || symbols->sh_entsize < sizeof(Elf64_Sym)) continue;
    const auto names = section(symbols->sh_link);
    if (!names || names->sh_offset > file.size() || names->sh_size > file.size() - names->sh_offset) continue;
    const char* const text = reinterpret_cast<const char*>(file.data() + names->sh_offset);
    for (std::size_t at = 0; at + symbols->sh_entsize <= symbols->sh_size; at += symbols->sh_entsize) {
      const auto symbol = read<Elf64_Sym>(file, symbols->sh_offset + at);
      if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_shndx == SHN_UNDEF) continue;
      if (symbol->st_name >= names->sh_size) continue;
      const char* const name = text + symbol->st_name;
      variables.emplace(std::string(name, strnlen(name, names->sh_size - symbol->st_name)),
                        ElfVariable{symbol->st_value, symbol->st_size});
    }
  }
  return variables;
}

}  // namespace aiocuda::emulator
