// See split.hpp. What a name is, is known for parameters and for variables that the kernel's body declares; a name that
// is declared twice is taken to change.
#include "split.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "kernel_values.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

using Names = std::unordered_set<std::string_view>;

class Splitter {
 public:
  Splitter(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations, const Declaration& kernel,
           const std::vector<std::string>& files)
      : tokens_(tokens),
        declarations_(declarations),
        kernel_(kernel),
        files_(files),
        values_(tokens, declarations, kernel),
        same_for_all_(values_.same_for_all()) {}

  bool split(Edits& edits) {
    if (!values_.keeps_parameters() || hands_out_references() || names_a_reference()) return false;
    if (!block({kernel_.body.begin + 1, kernel_.body.end - 1})) return false;
    aside_after(kernel_.body.begin,
                "const unsigned aiocuda_nx = ::aiocuda_device::direct::extent.x, aiocuda_ny = "
                "::aiocuda_device::direct::extent.y, aiocuda_nz = ::aiocuda_device::direct::extent.z;");
    for (const auto& edit : edits_) edit(edits);
    return true;
  }

 private:
  struct Variable {
    std::string_view name;
    std::string type;     // with its const
    std::string storage;  // the array of all threads' values
    std::string stored_type;
    std::string value =
        {};  // what a thread computes wherever it needs it, in place of the array; empty where it cannot
    bool is_same_for_all = false;
    bool is_shared = false;  // a __shared__ one: the storage is a reference to it
  };

  // ---- names

  // Does the kernel call a function of the program's that may change what it is given by name?
  bool hands_out_references() const {
    return std::any_of(declarations_.begin(), declarations_.end(), [&](const Declaration& d) {
      if (!d.is_function || d.parameters.empty()) return false;
      const auto begin = tokens_.begin(), end = begin + static_cast<std::ptrdiff_t>(d.parameters.end);
      if (std::none_of(begin + static_cast<std::ptrdiff_t>(d.parameters.begin), end,
                       [](const Token& token) { return token.is("&") || token.is("&&"); }))
        return false;
      const Names names = declared_names(tokens_, d);
      return std::any_of(begin + static_cast<std::ptrdiff_t>(kernel_.body.begin),
                         begin + static_cast<std::ptrdiff_t>(kernel_.body.end),
                         [&](const Token& token) { return names.contains(token.text); });
    });
  }

  // "T& r = x" may change x by another name.
  bool names_a_reference() const {
    for (std::size_t i = kernel_.body.begin + 1; i + 2 < kernel_.body.end; ++i) {
      const bool is_name = tokens_[i + 1].kind == TokenKind::identifier;
      const bool has_value = tokens_[i + 2].is("=") || tokens_[i + 2].is("{") || tokens_[i + 2].is(":");
      if ((tokens_[i].is("&") || tokens_[i].is("&&")) && is_name && has_value) return true;
    }
    return false;
  }

  bool is_same_for_all(Range range) const {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const Token& token = tokens_[i];
      if (token.is("[") || token.is("->") || token.is("{")) return false;
      if (token.kind != TokenKind::identifier) continue;
      if (is_place(token)) {
        i += 2;  // ".x"
        continue;
      }
      const bool is_known = is_type_word(token) || token.is("true") || token.is("false") || token.is("min") ||
                            token.is("max") || same_for_all_.contains(token.text);
      if (!is_known) return false;
    }
    return true;
  }

  // ---- statements

  bool has(Range range, std::string_view word) const {
    return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(range.begin),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(range.end),
                       [&](const Token& token) { return token.is(word); });
  }

  std::size_t end_of(std::size_t i) const {
    const Token& token = tokens_[i];
    if (token.is("{")) return skip_bracket(tokens_, i);
    const bool has_head = token.is("for") || token.is("while") || token.is("switch") || token.is("if");
    if (has_head && !tokens_[i + 1].is("(")) return kernel_.body.end;
    if (token.is("for") || token.is("while") || token.is("switch")) return end_of(skip_bracket(tokens_, i + 1));
    if (token.is("if")) {
      const std::size_t end = end_of(skip_bracket(tokens_, i + 1));
      return tokens_[end].is("else") ? end_of(end + 1) : end;
    }
    if (token.is("do")) i = end_of(i + 1);
    while (i < kernel_.body.end && !tokens_[i].is(";")) {
      const bool opens = tokens_[i].is("(") || tokens_[i].is("[") || tokens_[i].is("{");
      i = opens ? skip_bracket(tokens_, i) : i + 1;
    }
    return i + 1;
  }

  // May the statement stand in a loop over threads as it is?
  bool stands_alone(Range statement) const {
    static constexpr std::array<std::string_view, 10> unknown = {
        "_Pragma", "return", "goto", "asm", "__asm__", "static", "case", "default", "volatile", "__shared__"};
    if (std::any_of(unknown.begin(), unknown.end(), [&](std::string_view word) { return has(statement, word); }))
      return false;
    const Token& first = tokens_[statement.begin];
    const bool is_loop = first.is("for") || first.is("while") || first.is("do");
    if (!is_loop && (has(statement, "break") || has(statement, "continue"))) return false;
    if (is_loop || first.is("if") || first.is("{") || first.is("*") || first.is("++") || first.is("--")) return true;
    // "name = ...", "name[i] = ...", "name(...)", and no declaration.
    static constexpr std::array<std::string_view, 15> follows = {
        "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", "[", "(", ".", "->"};
    return first.kind == TokenKind::identifier &&
           std::find(follows.begin(), follows.end(), tokens_[statement.begin + 1].text) != follows.end();
  }

  struct Declarator {
    std::size_t name;
    std::string stars;
    std::vector<std::size_t> star_tokens;
    Range value;  // empty where it has none
  };
  struct Variables {
    std::vector<std::size_t> type;
    bool is_const = false;
    std::vector<Declarator> declarators;
  };

  std::optional<Variables> read_variables(Range statement) const {
    Variables read;
    std::size_t i = statement.begin;
    for (; is_type_word(tokens_[i]) || tokens_[i].is("const"); ++i) {
      read.is_const = read.is_const || tokens_[i].is("const");
      read.type.push_back(i);
    }
    if (read.type.size() == (read.is_const ? 1u : 0u)) return std::nullopt;
    for (;;) {
      Declarator each{};
      for (; tokens_[i].is("*"); ++i) {
        each.stars += '*';
        each.star_tokens.push_back(i);
      }
      each.name = i++;
      if (tokens_[each.name].kind != TokenKind::identifier) return std::nullopt;
      if (tokens_[i].is("=")) {
        each.value.begin = ++i;
        if (tokens_[i].is("{")) return std::nullopt;
        while (!tokens_[i].is(",") && !tokens_[i].is(";")) {
          const bool opens = tokens_[i].is("(") || tokens_[i].is("[") || tokens_[i].is("{");
          i = opens ? skip_bracket(tokens_, i) : i + 1;
        }
        each.value.end = i;
      }
      const bool is_last = tokens_[i].is(";");
      if (!is_last && !tokens_[i].is(",")) return std::nullopt;
      read.declarators.push_back(std::move(each));
      if (is_last) return i + 1 == statement.end ? std::optional(read) : std::nullopt;
      ++i;
    }
  }

  // ---- edits

  void replace(std::size_t token, std::string by) {
    edits_.emplace_back([&t = tokens_[token], by = std::move(by)](Edits& edits) { edits.replace(t, by); });
  }
  void blank(std::size_t token) { replace(token, std::string(tokens_[token].text.size(), ' ')); }
  void aside_before(std::size_t token, const std::string& inserted) {
    edits_.emplace_back(
        [&t = tokens_[token], by = aside(tokens_[token], files_, inserted)](Edits& edits) { edits.before(t, by); });
  }
  void aside_after(std::size_t token, const std::string& inserted) {
    edits_.emplace_back(
        [&t = tokens_[token], by = aside(tokens_[token], files_, inserted)](Edits& edits) { edits.after(t, by); });
  }

  // In front of a pragma that the statement has. (At the body's beginning stand the copies of the kernel's place.)
  void open_before(std::size_t statement, const std::string& inserted) {
    if (statement - 1 == kernel_.body.begin) {
      aside_before(statement, inserted);
    } else {
      aside_after(statement - 1, inserted);
    }
  }

  bool is_hidden(std::size_t variable, std::size_t count) const {
    const auto begin = visible_.begin();
    return std::any_of(begin + static_cast<std::ptrdiff_t>(variable) + 1, begin + static_cast<std::ptrdiff_t>(count),
                       [&](const Variable& inner) { return inner.name == visible_[variable].name; });
  }

  // The values of one thread, of the innermost variables of each name.
  std::string values(std::size_t count) const {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      const Variable& each = visible_[i];
      if (is_hidden(i, count)) continue;
      const std::string stored = each.storage + (each.is_shared ? "; " : "[aiocuda_t]; ");
      out += each.type + (each.value.empty() ? "& " : " ") + std::string(each.name) + " = " +
             (each.value.empty() ? stored : each.value + "; ");
    }
    return out;
  }

  // For a loop's header, which is the same for all threads. It names no value that is not.
  std::string values_of_all() const {
    std::string out;
    for (std::size_t i = 0; i < visible_.size(); ++i) {
      const Variable& each = visible_[i];
      if (!each.is_same_for_all || is_hidden(i, visible_.size())) continue;
      out += each.type + (each.value.empty() ? "& " : " ") + std::string(each.name) + " = " +
             (each.value.empty() ? each.storage + "[0]; " : each.value + "; ");
    }
    return out;
  }

  // The loop over all threads around the statements [first, last), which declare the variables from `known` on.
  void loop(std::size_t first, std::size_t last, std::size_t known) {
    std::string storage;
    for (std::size_t i = known; i < visible_.size(); ++i) {
      if (visible_[i].value.empty()) storage += visible_[i].stored_type + " " + visible_[i].storage + "[1024]; ";
    }
    open_before(first,
                storage +
                    "for (unsigned aiocuda_z = 0; aiocuda_z < aiocuda_nz; ++aiocuda_z) for (unsigned aiocuda_y = 0; "
                    "aiocuda_y < aiocuda_ny; ++aiocuda_y) { const ::size_t aiocuda_row = (::size_t)(aiocuda_z * "
                    "aiocuda_ny + aiocuda_y) * aiocuda_nx;\nAIOCUDA_INDEPENDENT\nfor (unsigned aiocuda_x = 0; "
                    "aiocuda_x < aiocuda_nx; ++aiocuda_x) { const ::uint3 threadIdx{aiocuda_x, aiocuda_y, aiocuda_z}; "
                    "const ::size_t aiocuda_t = aiocuda_row + aiocuda_x; " +
                    values(known) + "{");
    aside_after(last - 1, "}}}");
  }

  void declare(const Variables& variables) {
    std::string type, stored_type;
    for (const std::size_t i : variables.type) {
      type += std::string(tokens_[i].text) + " ";
      if (!tokens_[i].is("const")) stored_type += std::string(tokens_[i].text) + " ";
      blank(i);
    }
    const Range written{variables.type.front(), variables.type.back() + 1};
    for (const Declarator& each : variables.declarators) {
      for (const std::size_t i : each.star_tokens) blank(i);
      const bool is_pointer = !each.stars.empty(), has_value = !each.value.empty();
      Variable made{tokens_[each.name].text, type + each.stars, "aiocuda_of_all_" + std::to_string(++count_),
                    (is_pointer ? type : stored_type) + each.stars};
      if (has_value && values_.declarations_of(made.name) == 1 &&
          !values_.changes(made.name, {each.value.end, kernel_.body.end})) {
        made.is_same_for_all = !is_pointer && is_same_for_all(each.value);
        if (made.is_same_for_all) same_for_all_.insert(made.name);
        if (values_.can_be_computed(written, is_pointer, each.value)) {
          made.value = text_of(each.value);
          values_.add(made.name, written, is_pointer);
        }
      }
      const std::string place = made.storage + "[aiocuda_t]", name(made.name);
      if (made.value.empty()) {
        replace(each.name, made.type + "& " + name + " = " + place + (has_value ? "; " + place : ""));
      } else {
        replace(each.name, made.type + " " + name);
      }
      const std::size_t behind = has_value ? each.value.end : each.name + 1;
      if (tokens_[behind].is(",")) replace(behind, ";");
      visible_.push_back(std::move(made));
    }
  }

  std::string text_of(Range range) const {
    std::string out;
    for (std::size_t i = range.begin; i < range.end; ++i) out += std::string(tokens_[i].text) + " ";
    return out;
  }

  // Static shared variables are variables of the host's thread. Where one is, is asked for once for each block: in the
  // loops over threads the call would cost more than many a loop's body.
  void share(Range statement) {
    if (has(statement, "extern") || has(statement, "<") || has(statement, "{")) return;
    std::string places;
    for (std::size_t i = statement.begin + 1; i < statement.end; ++i) {
      if (tokens_[i].is("(") || tokens_[i].is("[")) i = skip_bracket(tokens_, i);
      const Token &before = tokens_[i - 1], &next = tokens_[i + 1];
      const bool follows_type = before.kind == TokenKind::identifier || before.is("*") || before.is(",");
      const bool is_name =
          tokens_[i].kind == TokenKind::identifier && follows_type && (next.is("[") || next.is(",") || next.is(";"));
      if (!is_name) continue;
      Variable made{tokens_[i].text, "auto", "aiocuda_shared_" + std::to_string(++count_), ""};
      made.is_shared = true;
      places += "auto& " + made.storage + " = ::aiocuda_device::found_once(" + std::string(made.name) + "); ";
      visible_.push_back(std::move(made));
    }
    aside_after(statement.end - 1, places);
  }

  // ---- the walk

  // The statements of the body, or of a loop around barriers.
  bool block(Range inside) {
    const std::size_t outer = visible_.size();
    std::size_t first = inside.begin, known = outer;
    bool is_open = false;
    const auto close = [&](std::size_t before) {
      if (is_open) loop(first, before, known);
      is_open = false;
    };
    for (std::size_t i = inside.begin; i < inside.end;) {
      const Range statement{i, end_of(i)};
      if (statement.end > inside.end) return false;
      const bool is_barrier = tokens_[i].is("__syncthreads") && statement.end == i + 4;
      const bool is_shared = has({i, std::min(i + 3, statement.end)}, "__shared__");
      if (is_barrier || is_shared || has(statement, "__syncthreads")) {
        close(i);
        if (is_shared && (has(statement, "=") || has(statement, "__syncthreads"))) return false;
        if (is_barrier) {
          for (std::size_t token = i; token < i + 3; ++token) blank(token);
        } else if (is_shared) {
          share(statement);
        } else if (!loop_around_barriers(statement)) {
          return false;
        }
      } else if (!tokens_[i].is(";")) {
        if (!is_open) {
          is_open = true;
          first = i;
          known = visible_.size();
        }
        if (const auto variables = read_variables(statement)) {
          declare(*variables);
        } else if (!stands_alone(statement)) {
          return false;
        }
      }
      i = statement.end;
    }
    close(inside.end);
    visible_.resize(outer);
    return true;
  }

  // "for (int i = 0; i < n; ++i) { ... }" with a header that is the same for all threads.
  bool loop_around_barriers(Range statement) {
    if (!tokens_[statement.begin].is("for")) return false;
    const std::size_t open = statement.begin + 1, past = skip_bracket(tokens_, open);
    if (!tokens_[past].is("{")) return false;
    const Range body{past + 1, statement.end - 1};
    const Range begin{open + 1, end_of(open + 1)};
    const Range condition{begin.end, end_of(begin.end)};
    const Range step{condition.end, past - 1};
    const auto variables = read_variables(begin);
    if (!variables || variables->declarators.size() != 1) return false;
    const Declarator& only = variables->declarators.front();
    const std::string_view name = tokens_[only.name].text;
    if (!only.stars.empty() || only.value.empty() || !is_same_for_all(only.value)) return false;
    const bool is_visible =
        std::any_of(visible_.begin(), visible_.end(), [&](const Variable& each) { return each.name == name; });
    if (is_visible || same_for_all_.contains(name) || values_.changes(name, body) || values_.changes(name, condition))
      return false;
    same_for_all_.insert(name);
    if (values_.declarations_of(name) == 1) values_.add(name, {begin.begin, only.name}, false);
    if (!is_same_for_all({condition.begin, condition.end - 1}) || !is_same_for_all(step)) return false;
    for (std::size_t i = step.begin; i < step.end; ++i) {
      if (tokens_[i].kind == TokenKind::identifier && !tokens_[i].is(name) && values_.changes_at(i)) return false;
    }
    open_before(statement.begin, "{ " + values_of_all());
    if (!block(body)) return false;
    aside_after(statement.end - 1, "}");
    same_for_all_.erase(name);
    return true;
  }

  const std::vector<Token>& tokens_;
  const std::vector<Declaration>& declarations_;
  const Declaration& kernel_;
  const std::vector<std::string>& files_;
  KernelValues values_;
  Names same_for_all_;
  std::vector<Variable> visible_;
  int count_ = 0;
  std::vector<std::function<void(Edits&)>> edits_;
};

}  // namespace

bool split_at_barriers(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                       const Declaration& kernel, const std::vector<std::string>& files, Edits& edits) {
  return Splitter(tokens, declarations, kernel, files).split(edits);
}

}  // namespace aiocuda::emulator::nvrtc
