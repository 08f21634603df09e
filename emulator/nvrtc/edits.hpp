// Changes to a text at its tokens, collected in any order and made all at once.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

class Edits {
 public:
  void replace(std::size_t offset, std::size_t size, std::string by) {
    edits_.push_back({offset, size, std::move(by)});
  }
  void replace(const Token& token, std::string by) { replace(token.offset, token.text.size(), std::move(by)); }
  void before(const Token& token, std::string inserted) { replace(token.offset, 0, std::move(inserted)); }
  void after(const Token& token, std::string inserted) {
    replace(token.offset + token.text.size(), 0, std::move(inserted));
  }
  void blank(const Token& token) { replace(token, std::string(token.text.size(), ' ')); }

  // At one place, what was asked first comes first.
  std::string made_to(std::string_view text) {
    std::stable_sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.offset < b.offset; });
    std::string out;
    out.reserve(text.size() + 256 * edits_.size());
    std::size_t at = 0;
    for (const Edit& e : edits_) {
      if (e.offset > at) {
        out += text.substr(at, e.offset - at);
        at = e.offset;
      }
      out += e.inserted;
      at = std::max(at, e.offset + e.removed);
    }
    out += text.substr(at);
    return out;
  }

 private:
  struct Edit {
    std::size_t offset;
    std::size_t removed;
    std::string inserted;
  };
  std::vector<Edit> edits_;
};

// Text for between quotation marks.
inline std::string escaped(std::string_view plain) {
  std::string out;
  for (const char c : plain) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// Behind this the compiler takes itself to be on the token's line.
inline std::string on_line_of(const Token& token, const std::vector<std::string>& files) {
  return "\n# " + std::to_string(token.line) + " \"" + escaped(files[token.file]) + "\"\n";
}

// Text of our own for behind or before a token, kept off the user's line so that messages do not quote it.
inline std::string aside(const Token& token, const std::vector<std::string>& files, const std::string& inserted) {
  return "\n# 1 \"<module>\"\n" + inserted + on_line_of(token, files);
}

}  // namespace aiocuda::emulator::nvrtc
