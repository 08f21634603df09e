// See cache.hpp. An entry: magic, SHA-256 of what follows, then fields, each with its length.
#include "cache.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "process.hpp"
#include "sha256.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view magic = "aiocuda module 1\n";
constexpr std::size_t hash_size = 64;
constexpr std::string_view suffix = ".module";

void append_field(std::string& to, std::string_view field) {
  to += std::to_string(field.size());
  to += ':';
  to += field;
}

class Fields {
 public:
  explicit Fields(std::string_view text) : text_(text) {}

  bool next(std::string& field) {
    std::size_t size = 0;
    const auto [end, problem] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
    const auto digits = static_cast<std::size_t>(end - text_.data());
    if (problem != std::errc{} || digits >= text_.size() || text_[digits] != ':' || text_.size() - digits - 1 < size)
      return false;
    field = text_.substr(digits + 1, size);
    text_.remove_prefix(digits + 1 + size);
    return true;
  }

  bool next(std::vector<std::string>& list) {
    std::string count_text;
    if (!next(count_text)) return false;
    std::size_t count = 0;
    std::from_chars(count_text.data(), count_text.data() + count_text.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      std::string item;
      if (!next(item)) return false;
      list.push_back(std::move(item));
    }
    return true;
  }

 private:
  std::string_view text_;
};

bool is_unchanged(const std::string& path, const std::string& hash) {
  std::string content;
  return read_file(path, content) && sha256(content) == hash;
}

}  // namespace

std::string Cache::entry_of(const std::string& key) { return key + std::string(suffix); }

std::optional<CachedModule> Cache::find(const std::string& key) const {
  std::string file;
  if (!directory_.is_open() || !directory_.read(entry_of(key), file)) return std::nullopt;
  const std::string_view content = file;
  if (!content.starts_with(magic) || content.size() < magic.size() + hash_size) return std::nullopt;
  const std::string_view body = content.substr(magic.size() + hash_size);
  if (sha256(body) != content.substr(magic.size(), hash_size)) return std::nullopt;
  CachedModule module;
  std::vector<std::string> dependencies;
  Fields fields(body);
  if (!fields.next(module.image) || !fields.next(module.log) || !fields.next(module.lowered_names) ||
      !fields.next(dependencies)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i + 1 < dependencies.size(); i += 2) {
    if (!is_unchanged(dependencies[i], dependencies[i + 1])) return std::nullopt;
  }
  directory_.touch(entry_of(key));  // the time of last use only decides what goes first
  return module;
}

void Cache::store(const std::string& key, const CachedModule& module) const {
  if (!directory_.is_open()) return;
  std::string body;
  append_field(body, module.image);
  append_field(body, module.log);
  append_field(body, std::to_string(module.lowered_names.size()));
  for (const std::string& name : module.lowered_names) append_field(body, name);
  append_field(body, std::to_string(2 * module.dependencies.size()));
  for (const auto& [path, hash] : module.dependencies) {
    append_field(body, path);
    append_field(body, hash);
  }
  // A full or read-only disk: the module is compiled all the same.
  if (directory_.write(entry_of(key), std::string(magic) + sha256(body) + body)) remove_oldest();
}

void Cache::remove_oldest() const {
  std::vector<PrivateDirectory::File> entries = directory_.files();
  std::erase_if(entries, [](const auto& file) { return !file.name.ends_with(suffix); });
  std::uint64_t total = 0;
  for (const auto& entry : entries) total += entry.size_bytes;
  if (total <= limit_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const auto& entry : entries) {
    if (total <= limit_bytes_) break;
    directory_.remove(entry.name);
    total -= entry.size_bytes;
  }
}

}  // namespace aiocuda::emulator::nvrtc
