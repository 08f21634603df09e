// See linking.hpp. The host's linker does the work; what it complains of is told in terms of the inputs' symbols, names
// and lines.
#include "linking.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "abi/text_image.hpp"
#include "cache.hpp"
#include "compiler.hpp"
#include "image.hpp"
#include "installation.hpp"
#include "process.hpp"
#include "settings.hpp"
#include "sha256.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_part_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }

// Where a symbol stands in a text as a whole word; npos where it does not.
std::size_t find_word(const std::string& text, const std::string& word, std::size_t from = 0) {
  for (std::size_t at = text.find(word, from); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t past = at + word.size();
    if ((at == 0 || !is_part_of_word(text[at - 1])) && (past == text.size() || !is_part_of_word(text[past]))) return at;
  }
  return std::string::npos;
}

// The place in the user's source that a linker's line about a symbol tells; empty without one. GNU ld writes
// "./a.cu:3: ...", and from 2.44 or a little earlier "./a.cu:3:(.text.name+0x1c): ...".
std::string place_in(const std::string& line) {
  static const std::regex place("(?:^|: )(?:\\./)*([^\\s:][^:]*):([0-9]+):(?:\\([^)]*\\):)? ");
  std::smatch match;
  return std::regex_search(line, match, place) ? match[1].str() + "(" + match[2].str() + ")" : std::string{};
}

std::vector<std::string> places_of(const std::string& output, const std::string& symbol) {
  std::vector<std::string> places;
  for (std::size_t begin = 0; begin < output.size();) {
    const std::size_t end = std::min(output.find('\n', begin), output.size());
    const std::string line = output.substr(begin, end - begin);
    begin = end + 1;
    if (find_word(line, symbol) == std::string::npos || line.find("undefined") == std::string::npos) continue;
    const std::string place = place_in(line);
    if (!place.empty() && std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

class Linking {
 public:
  explicit Linking(std::vector<LinkInput> inputs) : inputs_(std::move(inputs)) {}

  LinkResult run() {
    if (!look_at_inputs()) return std::move(result_);
    if (inputs_.size() == 1 && symbols_.empty()) {
      result_.image = std::move(inputs_[0].image);
      result_.status = LinkStatus::linked;
      return std::move(result_);
    }
    const Settings settings = read_settings();
    const Installation& installed = installation();
    const FoundCompiler found = find_compiler(settings);
    if (!installed.complete || !found.found) {
      result_.log = (installed.complete ? found.explanation : installed.explanation) + "\n";
      return std::move(result_);
    }
    const Cache cache(settings.cache_directory, settings.cache_limit_bytes);
    const std::string key = key_of(installed, found.compiler, settings);
    if (std::optional<CachedModule> known = cache.find(key)) {
      result_.image = std::move(known->image);
      result_.status = LinkStatus::linked;
      return std::move(result_);
    }
    link(installed, found.compiler, settings);
    if (result_.status == LinkStatus::linked) cache.store(key, {result_.image, "", {}, {}});
    return std::move(result_);
  }

 private:
  // Reads the symbols of the objects, and refuses what no linker need be asked about.
  bool look_at_inputs() {
    std::map<std::string, std::string> definers;
    for (LinkInput& input : inputs_) {
      std::optional<ObjectSymbols> symbols = symbols_of_object(input.image);
      if (!symbols) {
        if (inputs_.size() == 1 && is_shared_object(input.image)) return true;
        result_.log += "error   : '" + input.name +
                       "' was compiled as a whole program; compile it with -rdc=true to link it with others\n";
        continue;
      }
      for (const std::string& symbol : symbols->defined) {
        if (symbol.starts_with("aiocuda_")) continue;  // a unit's table, which follows the user's symbols
        const auto [known, is_new] = definers.try_emplace(symbol, input.name);
        if (is_new) continue;
        result_.log += "error   : Multiple definition of '" + symbol + "' in '" + input.name + "', first defined in '" +
                       known->second + "'\n";
        result_.status = LinkStatus::unresolved;
      }
      symbols_.push_back(std::move(*symbols));
    }
    return result_.log.empty();
  }

  std::string key_of(const Installation& installed, const Compiler& compiler, const Settings& settings) const {
    Sha256 hash;
    hash.add_field("link").add_field(installed.identity).add_field(compiler.identity).add_field(processor_identity());
    hash.add_field(settings.checked ? "checked" : "");
    for (const LinkInput& input : inputs_) hash.add_field(input.image);
    return hash.hex();
  }

  void link(const Installation& installed, const Compiler& compiler, const Settings& settings) {
    const TemporaryDirectory directory(settings.temporary_directory);
    CompilerPaths paths;
    paths.runtime_object = settings.checked ? installed.checked_runtime_object : installed.runtime_object;
    paths.output = directory.path() / "linked.so";
    std::vector<std::string> objects;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      objects.push_back(directory.path() / (std::to_string(i) + ".o"));
      write_file(objects.back(), inputs_[i].image);
    }
    std::vector<std::string> command = link_command(compiler, paths, objects, Undefined::refused);
    if (compiler.family != CompilerFamily::zig) command.emplace_back("-Wl,--no-demangle");
    const ProcessResult process = run_process(command);
    if (!process.started || process.exit_status != 0) {
      result_.log = what_is_missing(process.output);
      if (!result_.log.empty()) {
        result_.status = LinkStatus::unresolved;
      } else {
        result_.log = "error   : the linker of " + compiler.command[0] + " failed: " + process.output + "\n";
      }
      return;
    }
    if (!read_file(paths.output, result_.image) || !complete_image(result_.image).valid) {
      result_.log = "error   : the linker of " + compiler.command[0] + " ended well but made no module\n";
      return;
    }
    result_.status = LinkStatus::linked;
  }

  // The symbols that inputs want and that the linker has not found, with the lines that want them.
  std::string what_is_missing(const std::string& output) const {
    std::set<std::string> defined;
    for (const ObjectSymbols& symbols : symbols_) {
      defined.insert(symbols.defined.begin(), symbols.defined.end());
      defined.insert(symbols.shared.begin(), symbols.shared.end());
    }
    std::string log;
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      for (const std::string& symbol : symbols_[i].wanted) {
        if (defined.contains(symbol) || find_word(output, symbol) == std::string::npos) continue;
        log += "error   : Undefined reference to '" + symbol + "' in '" + inputs_[i].name + "'\n";
        for (const std::string& place : places_of(output, symbol)) log += "note    : used at " + place + "\n";
      }
    }
    return log;
  }

  std::vector<LinkInput> inputs_;
  std::vector<ObjectSymbols> symbols_;
  LinkResult result_;
};

}  // namespace

LinkResult link(std::vector<LinkInput> inputs) {
  try {
    return Linking(std::move(inputs)).run();
  } catch (const std::filesystem::filesystem_error& error) {
    LinkResult result;
    result.log = std::string("error   : a linker cannot use its files: ") + error.what() + "\n";
    return result;
  }
}

namespace {

// The names of an archive's members, in the form of System V and GNU; none where it is no archive, or not whole.
std::vector<std::string> members_of_archive(std::string_view content) {
  constexpr std::string_view magic = "!<arch>\n";
  constexpr std::size_t header_bytes = 60, name_bytes = 16, size_at = 48, size_digits = 10;
  if (!content.starts_with(magic)) return {};
  std::vector<std::string> members;
  std::string_view long_names;
  for (std::size_t at = magic.size(); at < content.size();) {
    if (content.size() - at < header_bytes) return {};
    const std::string name(content.substr(at, name_bytes));
    const std::size_t bytes =
        std::strtoull(std::string(content.substr(at + size_at, size_digits)).c_str(), nullptr, 10);
    at += header_bytes;
    if (content.size() - at < bytes) return {};
    if (name.starts_with("//")) {
      long_names = content.substr(at, bytes);
    } else if (name[0] == '/' && name[1] >= '0' && name[1] <= '9') {
      const std::string_view rest =
          long_names.substr(std::min<std::size_t>(std::strtoull(name.c_str() + 1, nullptr, 10), long_names.size()));
      members.emplace_back(rest.substr(0, rest.find('/')));
    } else if (name[0] != '/') {  // else it is the index
      members.push_back(name.substr(0, name.find('/')));
    }
    at += bytes + bytes % 2;
  }
  return members;
}

}  // namespace

InputKind read_input(std::string& content) {
  if (members_of_archive(content) == std::vector<std::string>{"cuda_device_runtime.o"})
    return InputKind::device_runtime;
  if (std::optional<std::string> image = abi::image_of_text(content)) content = std::move(*image);
  if (symbols_of_object(content)) return InputKind::object;
  if (is_shared_object(content)) return InputKind::whole_program;
  return content.find(".version") != std::string::npos ? InputKind::text_without_image : InputKind::unknown;
}

std::string why_no_input(InputKind kind, const std::string& name) {
  const std::string what = kind == InputKind::text_without_image ? "is PTX, which only a GPU can run"
                                                                 : "is nothing that the emulated NVRTC has compiled";
  return "error   : '" + name + "' " + what + ": compile CUDA C++ source with NVRTC, and link what that answers\n";
}

}  // namespace aiocuda::emulator::nvrtc
