// The tokenizer: identifiers, numbers, string and character literals (raw ones too), punctuation.
#include "tokens.hpp"

#include <cctype>
#include <charconv>

namespace aiocuda::emulator::nvrtc {
namespace {

bool starts_identifier(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }
bool is_identifier(char c) { return starts_identifier(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) { source_.files.emplace_back(); }

  TokenizedSource run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++at_;
        ++line_;
        line_starts_ = true;
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\\') {
        ++at_;
      } else if (c == '#' && line_starts_) {
        directive();
      } else {
        line_starts_ = false;
        token(c);
      }
    }
    return std::move(source_);
  }

 private:
  void token(char c) {
    const std::size_t begin = at_;
    if (starts_identifier(c)) {
      while (at_ < text_.size() && is_identifier(text_[at_])) ++at_;
      const std::string_view word = text_.substr(begin, at_ - begin);
      if (at_ < text_.size() && text_[at_] == '"' && word.back() == 'R' && is_literal_prefix(word)) {
        raw_string();
        return add(TokenKind::text, begin);
      }
      if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'') && is_literal_prefix(word)) {
        quoted(text_[at_]);
        return add(TokenKind::text, begin);
      }
      return add(TokenKind::identifier, begin);
    }
    if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      number();
      return add(TokenKind::number, begin);
    }
    if (c == '"' || c == '\'') {
      quoted(c);
      return add(TokenKind::text, begin);
    }
    at_ += punctuation_size();
    add(TokenKind::punctuation, begin);
  }

  static bool is_literal_prefix(std::string_view word) {
    return word == "R" || word == "L" || word == "u" || word == "U" || word == "u8" || word == "LR" || word == "uR" ||
           word == "UR" || word == "u8R";
  }

  std::size_t punctuation_size() const {
    // Only those whose pieces would be mistaken for something else. ">>" stays two, so that template
    // brackets close; "<<<" is how a kernel would be launched.
    for (const std::string_view longer : {"<<<", "...", "::", "->", "==", "!=", "<=", ">=", "+=", "-=", "*=",
                                          "/=",  "%=",  "&=", "|=", "^=", "&&", "||", "++", "--", "<<"}) {
      if (text_.substr(at_, longer.size()) == longer) return longer.size();
    }
    return 1;
  }

  void number() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool sign_of_exponent = (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E' ||
                                                               text_[at_ - 1] == 'p' || text_[at_ - 1] == 'P');
      const bool separator = c == '\'' && at_ + 1 < text_.size() && is_identifier(text_[at_ + 1]);
      if (!is_identifier(c) && c != '.' && !separator && !(sign_of_exponent && !is_hexadecimal_e())) break;
      ++at_;
    }
  }

  // In 0x1e+2 the "e" is a digit.
  bool is_hexadecimal_e() const {
    if (text_[at_ - 1] == 'p' || text_[at_ - 1] == 'P') return false;
    std::size_t begin = at_;
    while (begin > 0 && (is_identifier(text_[begin - 1]) || text_[begin - 1] == '.')) --begin;
    return text_.substr(begin, 2) == "0x" || text_.substr(begin, 2) == "0X";
  }

  void quoted(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') ++at_;
      if (at_ < text_.size() && text_[at_] == '\n') {  // not closed: the compiler will say so
        return;
      }
    }
    if (at_ < text_.size()) ++at_;
  }

  void raw_string() {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) {
      at_ = text_.size();
      return;
    }
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t end = text_.find(close, open);
    const std::size_t past = end == std::string_view::npos ? text_.size() : end + close.size();
    for (; at_ < past; ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }

  void add(TokenKind kind, std::size_t begin) {
    if (at_ > text_.size()) at_ = text_.size();
    source_.tokens.push_back({kind, text_.substr(begin, at_ - begin), begin, file_, line_});
  }

  void directive() {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view text = text_.substr(at_, end - at_);
    source_.directives.push_back({text, at_, file_, line_});
    at_ = end;
    line_marker(text);
  }

  // "# 12 "file.cu" 2" or "#line 12 "file.cu"": what the next line is.
  void line_marker(std::string_view text) {
    std::size_t i = text.find_first_not_of(" \t", 1);
    if (i == std::string_view::npos) return;
    if (text.substr(i, 4) == "line") i = text.find_first_not_of(" \t", i + 4);
    if (i == std::string_view::npos || !is_digit(text[i])) return;
    int line = 0;
    std::from_chars(text.data() + i, text.data() + text.size(), line);
    line_ = line - 1;  // the line's own end counts one up
    const std::size_t open = text.find('"', i);
    if (open == std::string_view::npos) return;
    std::string name;
    for (std::size_t j = open + 1; j < text.size() && text[j] != '"'; ++j) {
      if (text[j] == '\\' && j + 1 < text.size()) ++j;
      name += text[j];
    }
    for (file_ = 0; file_ < source_.files.size() && source_.files[file_] != name;) ++file_;
    if (file_ == source_.files.size()) source_.files.push_back(std::move(name));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::size_t file_ = 0;
  bool line_starts_ = true;
  TokenizedSource source_;
};

}  // namespace

TokenizedSource tokenize(std::string_view text) { return Tokenizer(text).run(); }

std::size_t skip_bracket(const std::vector<Token>& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i].kind != TokenKind::punctuation) continue;
    const char c = tokens[i].text[0];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0) return i + 1;
  }
  return tokens.size();
}

std::size_t skip_angles(const std::vector<Token>& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size();) {
    const Token& token = tokens[i];
    if (token.is("<")) ++depth;
    if (token.is("<<")) depth += 2;
    if (token.is(">") && --depth == 0) return i + 1;
    if (token.is(";") || token.is("{") || token.is("}") || token.is(")")) break;
    i = token.is("(") || token.is("[") ? skip_bracket(tokens, i) : i + 1;
  }
  return open + 1;
}

}  // namespace aiocuda::emulator::nvrtc
