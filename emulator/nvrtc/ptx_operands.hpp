// An instruction of inline PTX and its operands, as expressions of C++.
#pragma once

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx_text.hpp"

namespace aiocuda::emulator::nvrtc::ptx {

inline constexpr const char* library = "::aiocuda_device::ptx::";

struct Operand {
  std::string name;  // of "[name] "=r"(x)"
  std::string constraint;
  std::string expression;
};

struct Unsupported {
  std::string what;
};

class Instruction {
 public:
  bool knows_others() const { return knows_others_; }

 protected:
  Instruction(std::vector<Operand> operands, int line) : operands_(std::move(operands)), line_(std::to_string(line)) {}

  static std::string variable(std::size_t i) { return "aiocuda_operand_" + std::to_string(i); }

  static std::string local(std::string_view name) {
    std::string out = "aiocuda_register_";
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') out += c;
      if (c == '$') out += "_dollar_";
    }
    return out;
  }

  // An operand that is read.
  std::string value(const std::string& text, std::string_view type = "b32") {
    if (text.empty()) throw Unsupported{opcode_ + " with fewer operands"};
    if (text[0] == '!') return "::aiocuda_device::ptx::not_predicate(" + value(text.substr(1)) + ")";
    if (text.starts_with("0f") || text.starts_with("0F")) return "0x" + text.substr(2) + "ull";
    if (text.starts_with("0d") || text.starts_with("0D")) return "0x" + text.substr(2) + "ull";
    if (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-') {
      const bool is_float = text.find('.') != std::string::npos;
      if (is_float) return std::string(library) + "literal<" + type_of(type) + ">(" + text + ")";
      return "(::aiocuda_device::ptx::Register)(long long)(" +
             (text.ends_with('U') ? text.substr(0, text.size() - 1) : text) + ")";
    }
    if (text == "WARP_SZ") return "32";
    return place(text);
  }

  // An operand that may be written.
  std::string place(const std::string& text) {
    if (text == "_") return "aiocuda_carry";
    if (text[0] != '%') return local(text);
    if (text[1] == '%') return special(text.substr(2));
    if (text[1] == '[') {
      const std::string name = text.substr(2, text.find(']') - 2);
      for (std::size_t i = 0; i < operands_.size(); ++i) {
        if (operands_[i].name == name) return variable(i);
      }
      throw Unsupported{"the operand " + text};
    }
    if (std::isdigit(static_cast<unsigned char>(text[1])) != 0) {
      const std::size_t index = std::stoul(text.substr(1));
      if (index >= operands_.size()) throw Unsupported{"the operand " + text + ", which is not there"};
      return variable(index);
    }
    return special(text.substr(1));
  }

  std::string special(const std::string& name) {
    const auto known = special_registers().find(name);
    if (known == special_registers().end()) {
      const std::size_t digits = std::min(name.find_last_not_of("0123456789") + 1, name.size());
      if (declared_.contains("%" + name) || declared_.contains("%" + name.substr(0, digits))) return local(name);
      throw Unsupported{"the register %" + name};
    }
    if (name.starts_with("lane") || name.starts_with("warp") || name.starts_with("tid")) knows_others_ = true;
    return "(::aiocuda_device::ptx::Register)" + std::string(known->second);
  }

  Words list(const std::string& text) const {
    if (!text.starts_with('{')) return {text};
    return split(std::string_view(text).substr(1, text.size() - 2), ',');
  }

  // ---- modifiers
  bool has(std::string_view modifier) const {
    return std::find(parts_.begin() + 1, parts_.end(), modifier) != parts_.end();
  }
  bool has_any(std::initializer_list<std::string_view> modifiers) const {
    return std::any_of(modifiers.begin(), modifiers.end(), [&](std::string_view m) { return has(m); });
  }
  Words types() const {
    Words found;
    for (std::size_t i = 1; i < parts_.size(); ++i) {
      if (!type_of(parts_[i]).empty() || parts_[i] == "pred" || parts_[i] == "tf32") found.push_back(parts_[i]);
    }
    return found;
  }
  std::string type_suffix() const {
    const Words all = types();
    if (all.empty()) throw Unsupported{opcode_};
    return all.back();
  }

  std::string argument(std::size_t i, std::string_view type = "b32") {
    if (i >= arguments_.size()) throw Unsupported{opcode_ + " with fewer operands"};
    return value(arguments_[i], type);
  }
  std::string target() {
    if (arguments_.empty()) throw Unsupported{opcode_ + " with fewer operands"};
    return place(arguments_[0]);
  }
  std::string call(const std::string& function, const std::string& type, std::size_t count) {
    std::string code = target() + " = " + library + function + (type.empty() ? "" : "<" + type_of(type) + ">") + "(";
    for (std::size_t i = 1; i <= count; ++i) code += (i > 1 ? ", " : "") + argument(i, type.empty() ? "b32" : type);
    return code + ")";
  }

  // "[%1+16]"
  std::string address(const std::string& text) {
    if (!text.starts_with('[')) throw Unsupported{opcode_ + " without an address"};
    const std::string inside = text.substr(1, text.rfind(']') - 1);
    const std::size_t sign = inside.find_first_of("+-", 1);
    std::string where = value(inside.substr(0, sign));
    if (sign != std::string::npos) {
      const std::size_t digits = inside[sign] == '+' ? sign + 1 : sign;
      where = "(" + where + " + (" + inside.substr(digits) + "))";
    }
    const bool is_shared = has_any({"shared", "shared::cta", "shared::cluster"});
    if (has("tex") || (has_any({"param", "param::entry", "param::func"}) && parts_[0] != "ld"))
      throw Unsupported{opcode_};
    return std::string(library) + (is_shared ? "shared(" : "generic(") + where + ")";
  }
  unsigned width() const { return has("v2") ? 2 : has("v4") ? 4 : has("v8") ? 8 : 1; }

  std::vector<Operand> operands_;
  std::string line_;
  std::string opcode_;
  Words parts_;
  Words arguments_;
  std::set<std::string> declared_;  // registers, those with a count without it
  bool knows_others_ = false;
};

}  // namespace aiocuda::emulator::nvrtc::ptx
