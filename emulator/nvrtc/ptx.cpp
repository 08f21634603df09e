// See ptx.hpp.
#include "ptx.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "ptx_text.hpp"
#include "ptx_threads.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

using ptx::library;
using ptx::Operand;
using ptx::Unsupported;

class Translator : public ptx::CommonInstruction {
 public:
  Translator(std::string text, std::vector<Operand> operands, std::size_t outputs, int line)
      : CommonInstruction(std::move(operands), line), text_(std::move(text)), outputs_(outputs) {}

  std::string run() {
    std::string code = "::aiocuda_device::ptx::Register ";
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool is_read = i >= outputs_ || operands_[i].constraint.find('+') != std::string::npos;
      code +=
          variable(i) + " = " + (is_read ? std::string(library) + "in(" + operands_[i].expression + ")" : "0") + ", ";
    }
    code += "aiocuda_carry = 0; (void)aiocuda_carry; ";
    statements();
    for (const std::string& label : targets_) {
      if (!labels_.contains(label)) throw Unsupported{"a branch to the label " + label + ", which is not there,"};
    }
    code += code_;
    for (std::size_t i = 0; i < outputs_; ++i)
      code += std::string(library) + "out(" + operands_[i].expression + ", " + variable(i) + "); ";
    // A function may have the statement twice: its labels are its own.
    std::string labels;
    for (const std::string& label : labels_) labels += "__label__ " + of_label(label) + "; ";
    return "do { " + labels + code + "} while (false)";
  }

 private:
  void statements() {
    std::string rest = without_comments(text_);
    std::size_t at = 0;
    while (at < rest.size()) {
      if (std::isspace(static_cast<unsigned char>(rest[at])) != 0 || rest[at] == ';') {
        ++at;
      } else if (rest[at] == '{' || rest[at] == '}') {
        code_ += rest[at++];
        code_ += ' ';
      } else if (const std::size_t behind = pass_label(rest, at); behind != at) {
        at = behind;
      } else {
        const std::size_t end = std::min(rest.find(';', at), rest.size());
        statement(rest.substr(at, end - at));
        at = end;
      }
    }
  }

  void statement(std::string text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
    if (text.starts_with(".reg")) return declaration(text);
    if (text.starts_with('.')) throw Unsupported{text.substr(0, text.find_first_of(" \t"))};
    std::string guard;
    if (text.starts_with('@')) {
      const std::size_t end = text.find_first_of(" \t");
      const bool negates = text[1] == '!';
      guard = "if (" + std::string(negates ? "!" : "") + "(" +
              value(text.substr(negates ? 2 : 1, end - (negates ? 2 : 1))) + ")) ";
      text = text.substr(std::min(text.find_first_not_of(" \t", end), text.size()));
    }
    const std::size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string opcode = text.substr(0, end);
    parts_ = split(opcode, '.');
    arguments_ = split(std::string_view(text).substr(end), ',');
    opcode_ = opcode;
    std::string done = instruction();
    code_ += guard + "{ " + done + "; } ";
  }

  // ".reg .b32 a, b;"
  void declaration(const std::string& text) {
    const std::size_t type = text.find('.', 1);
    const std::size_t names = type == std::string::npos ? type : text.find_first_of(" \t", type);
    if (names == std::string::npos) throw Unsupported{text};
    for (const std::string& name : split(std::string_view(text).substr(names), ',')) {
      const std::size_t count = name.find('<');
      declared_.insert(name.substr(0, count));
      if (count == std::string::npos) {
        define(local(name));
        continue;
      }
      for (int i = 0; i < std::stoi(name.substr(count + 1)); ++i) {
        const std::string one = local(name.substr(0, count) + std::to_string(i));
        define(one);
      }
    }
  }

  // A branch may go past it.
  void define(const std::string& name) { code_ += "::aiocuda_device::ptx::Register " + name + "; " + name + " = 0; "; }

  // ---- labels
  static std::string of_label(std::string_view label) { return "aiocuda_label_of_" + local(label); }

  // Behind the label that begins at a place; the place itself where none does.
  std::size_t pass_label(const std::string& text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || std::strchr("_$%=", text[end]) != nullptr))
      ++end;
    if (end == at || end == text.size() || text[end] != ':' || text.compare(end, 2, "::") == 0) return at;
    const std::string label = text.substr(at, end - at);
    if (!labels_.insert(label).second) throw Unsupported{"the label " + label + " for a second time"};
    code_ += of_label(label) + ":; ";
    return end + 1;
  }

  std::string branch() {
    if (arguments_.size() != 1) throw Unsupported{opcode_};
    targets_.insert(arguments_[0]);
    // A loop that may wait for another thread lets it go on.
    const bool waits = labels_.contains(arguments_[0]) && knows_others_;
    return std::string(waits ? "::aiocuda_yield(); " : "") + "goto " + of_label(arguments_[0]);
  }

  // ---- instructions
  std::string instruction() {
    const std::string& name = parts_[0];
    if (name == "bra") return branch();
    if (has_any({"cc"}) || name == "addc" || name == "subc") return with_carry();
    if (name == "mov") return move();
    static const std::map<std::string_view, std::pair<const char*, std::size_t>> simple = {
        {"add", {"add", 2}},   {"sub", {"sub", 2}},     {"div", {"div", 2}},     {"rem", {"rem", 2}},
        {"min", {"min", 2}},   {"max", {"max", 2}},     {"shl", {"shl", 2}},     {"shr", {"shr", 2}},
        {"fma", {"fma", 3}},   {"sad", {"sad", 3}},     {"bfe", {"bfe", 3}},     {"bfi", {"bfi", 4}},
        {"neg", {"neg", 1}},   {"abs", {"abs", 1}},     {"cnot", {"cnot", 1}},   {"popc", {"popc", 1}},
        {"clz", {"clz", 1}},   {"brev", {"brev", 1}},   {"bfind", {"bfind", 1}}, {"rcp", {"rcp", 1}},
        {"sqrt", {"sqrt", 1}}, {"rsqrt", {"rsqrt", 1}}, {"ex2", {"ex2", 1}},     {"lg2", {"lg2", 1}},
        {"sin", {"sin", 1}},   {"cos", {"cos", 1}},     {"tanh", {"tanh", 1}},   {"bmsk", {"bmsk", 2}}};
    if (const auto found = simple.find(name); found != simple.end()) {
      if (has_any({"wrap", "sat", "relu", "NaN", "xorsign", "shiftamt"})) throw Unsupported{opcode_};
      const bool is_rounded = has_any({"rz", "rm", "rp"});
      if (is_rounded && type_suffix()[0] == 'f') return rounded(name, found->second.second);
      return call(found->second.first, type_suffix(), found->second.second);
    }
    if (name == "and" || name == "or" || name == "xor" || name == "not") return bitwise(name);
    if (name == "mul" || name == "mad") {
      const std::string kind = has("wide") ? "_wide" : has("hi") ? "_hi" : "";
      if (name == "mad" && type_suffix()[0] == 'f') return call("fma", type_suffix(), 3);
      if (has("sat")) throw Unsupported{opcode_};
      return call(name + kind, type_suffix(), name == "mul" ? 2 : 3);
    }
    if (name == "mul24" || name == "mad24") throw Unsupported{opcode_};
    if (name == "prmt" && parts_.size() == 2) return call("prmt", "", 3);
    if (name == "lop3" && parts_.size() == 2) return call("lop3", "", 4);
    if (name == "shf") {
      return target() + " = " + library + "shf(" + argument(1) + ", " + argument(2) + ", " + argument(3) + ", " +
             (has("l") ? "true" : "false") + ", " + (has("wrap") ? "true" : "false") + ")";
    }
    if (name == "dp4a" && types().size() == 2) {
      const auto byte = [](const std::string& type) { return type[0] == 's' ? "signed char" : "unsigned char"; };
      return target() + " = " + library + "dp4a<" + byte(types()[0]) + ", " + byte(types()[1]) + ">(" + argument(1) +
             ", " + argument(2) + ", " + argument(3) + ")";
    }
    if (name == "vabsdiff4" && has("add")) {
      return target() + " = ::__vsadu4((unsigned)" + argument(1) + ", (unsigned)" + argument(2) + ") + (unsigned)" +
             argument(3);
    }
    if (name == "selp")
      return target() + " = " + argument(3) + " ? " + argument(1, type_suffix()) + " : " + argument(2, type_suffix());
    if (name == "setp" || name == "set") return compare(name == "setp");
    if (name == "cvt") return convert();
    if (name == "ld" || name == "ldu") return load();
    if (name == "st") return has("async") ? tells_barrier(store(), width()) : store();
    if (name == "red" && has("async")) return tells_barrier(atomic(false), 1);
    if (name == "atom" || name == "red") return atomic(name == "atom");
    if (name == "prefetch" || name == "prefetchu" || name == "discard" || name == "applypriority") return "(void)0";
    if (name == "cvta") return convert_address();
    if (name == "isspacep") {
      static const std::map<std::string_view, const char*> questions = {{"shared", "__isShared"},
                                                                        {"shared::cta", "__isShared"},
                                                                        {"shared::cluster", "__isClusterShared"},
                                                                        {"global", "__isGlobal"},
                                                                        {"local", "__isLocal"},
                                                                        {"const", "__isConstant"},
                                                                        {"param", "__isGridConstant"},
                                                                        {"param::entry", "__isGridConstant"}};
      const auto found = questions.find(parts_.size() == 2 ? parts_[1] : "");
      if (found == questions.end()) throw Unsupported{opcode_};
      return target() + " = ::" + found->second + "((void*)" + argument(1) + ")";
    }
    const bool is_of_tensor_maps = has_any({"tensormap::generic", "alias", "fabric"});
    if (name == "membar" || (name == "fence" && !is_of_tensor_maps)) return "::__threadfence_system()";
    if (name == "bar" || name == "barrier") return barrier();
    if (name == "cp") return has("bulk") ? copy_bulk() : has("mbarrier") ? arrive_of_copies() : copy_async();
    if (name == "mbarrier") return phase_barrier();
    if (name == "mapa" || name == "getctarank") return place_in_cluster();
    if (name == "nanosleep") return "::__nanosleep((unsigned)" + argument(0) + ")";
    if (name == "trap") return "::__trap(" + line_ + ")";
    if (name == "brkpt" || name == "pmevent") return "(void)0";
    knows_others_ = true;
    if (name == "activemask") return target() + " = ::__activemask(" + line_ + ")";
    if (name == "vote" && has("sync")) return vote();
    if (name == "elect" && has("sync")) return elect();
    if (name == "shfl" && has("sync")) return shuffle();
    if (name == "redux" && has("sync") && type_suffix()[0] != 'f') {
      const std::string operation = parts_[2];
      const std::string type = type_suffix() == "s32" ? "int" : "unsigned";
      return target() + " = (unsigned)::__reduce_" + operation + "_sync((unsigned)" + argument(2) + ", (" + type + ")" +
             argument(1) + ", " + line_ + ")";
    }
    if (name == "match" && has("any")) {
      return target() + " = ::__match_any_sync((unsigned)" + argument(2) + ", (" + type_of(type_suffix()) + ")" +
             argument(1) + ", " + line_ + ")";
    }
    if (name == "ldmatrix") return load_matrix();
    if (name == "mma" && has("sync")) return matrix();
    throw Unsupported{opcode_};
  }

  std::string rounded(const std::string& name, std::size_t count) {
    static const std::map<std::string_view, const char*> names = {{"add", "add"}, {"sub", "sub"}, {"mul", "mul"},
                                                                  {"div", "div"}, {"fma", "fma"}, {"sqrt", "sqrt"},
                                                                  {"rcp", "rcp"}};
    const auto found = names.find(name);
    const std::string type = type_suffix();
    if (found == names.end() || (type != "f32" && type != "f64")) throw Unsupported{opcode_};
    const char* direction = has("rz") ? "_rz" : has("rm") ? "_rd" : "_ru";
    const bool is_double = type == "f64";
    std::string code =
        target() + " = " + library + "put(::__" + (is_double ? "d" : "f") + found->second + direction + "(";
    if (name == "fma") code = target() + " = " + library + "put(::__fma" + (is_double ? "" : "f") + direction + "(";
    for (std::size_t i = 1; i <= count; ++i)
      code += (i > 1 ? ", " : "") + std::string(library) + "get<" + type_of(type) + ">(" + argument(i, type) + ")";
    return code + "))";
  }

  std::string with_carry() {
    const std::string& name = parts_[0];
    const std::string type = type_suffix();
    const bool adds = name == "add" || name == "addc";
    if ((!adds && name != "sub" && name != "subc") || bytes_of(type) < 4) throw Unsupported{opcode_};
    const std::string wide = type_of(bytes_of(type) == 8 ? "u64" : "u32");
    const std::string carry = name.ends_with('c') ? "aiocuda_carry" : "0";
    const char* operation = adds ? "__builtin_add_overflow" : "__builtin_sub_overflow";
    std::string code = wide + " first, both; const bool one = " + operation + "((" + wide + ")" + argument(1) + ", (" +
                       wide + ")" + argument(2) + ", &first); const bool two = " + operation + "(first, (" + wide +
                       ")" + carry + ", &both); ";
    if (has("cc")) code += "aiocuda_carry = one || two; ";
    return code + "(void)one; (void)two; " + target() + " = both";
  }

  std::string bitwise(const std::string& name) {
    const std::string type = type_suffix();
    if (type == "pred") {
      if (name == "not") return target() + " = " + argument(1) + " == 0";
      const std::string operation = name == "and" ? " & " : name == "or" ? " | " : " ^ ";
      return target() + " = (" + argument(1) + " != 0)" + operation + "(" + argument(2) + " != 0)";
    }
    return call("bit_" + name, type, name == "not" ? 1 : 2);
  }

  std::string move() {
    const std::string type = type_suffix();
    if (arguments_.size() != 2) throw Unsupported{opcode_ + " with other than two operands"};
    const bool packs = arguments_[1].starts_with('{');
    if (!packs && !arguments_[0].starts_with('{')) return target() + " = " + argument(1, type);
    const Words many = list(arguments_[packs ? 1 : 0]);
    const std::string bits = std::to_string(bytes_of(type) * 8 / many.size());
    const std::string mask = "((1ull << " + bits + ") - 1)";
    std::string code = packs ? "const ::aiocuda_device::ptx::Register whole = 0"
                             : "const ::aiocuda_device::ptx::Register whole = " + argument(1, type);
    for (std::size_t i = 0; i < many.size(); ++i) {
      const std::string shift = " (" + std::to_string(i) + " * " + bits + ")";
      if (packs) {
        code += " | (" + value(many[i]) + " & " + mask + ") <<" + shift;
      } else {
        code += "; " + place(many[i]) + " = whole >>" + shift + " & " + mask;
      }
    }
    return packs ? code + "; " + target() + " = whole" : code;
  }

  std::string compare(bool to_predicate) {
    static const std::map<std::string_view, const char*> names = {
        {"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
    static constexpr std::array<std::string_view, 14> known = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                                               "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    std::string comparison = parts_.size() > 1 ? parts_[1] : "";
    if (const auto alias = names.find(comparison); alias != names.end()) comparison = alias->second;
    const std::string type = type_suffix();
    if (std::find(known.begin(), known.end(), comparison) == known.end() || type_of(type).empty())
      throw Unsupported{opcode_};
    std::string code = "const bool holds = " + std::string(library) + "compare<" + type_of(type) + ">(" + library +
                       "Comparison::" + comparison + ", " + argument(1, type) + ", " + argument(2, type) + "); ";
    const std::string combined = has("and")   ? "(" + argument(3) + " != 0) && "
                                 : has("or")  ? "(" + argument(3) + " != 0) || "
                                 : has("xor") ? "(" + argument(3) + " != 0) != "
                                              : "";
    if (!to_predicate) {
      const std::string yes = types().front() == "f32" ? "0x3f800000ull" : "0xffffffffull";
      return code + target() + " = " + combined + "holds ? " + yes + " : 0";
    }
    const Words targets = split(arguments_[0], '|');
    code += place(targets[0]) + " = " + combined + "holds";
    if (targets.size() > 1) code += "; " + place(targets[1]) + " = " + combined + "!holds";
    return code;
  }

  std::string convert() {
    const Words all = types();
    if (all.size() < 2) throw Unsupported{opcode_};
    const std::string& to = all[0];
    const std::string& from = all[1];
    const char rounding = has_any({"rni", "rn", "rna"}) ? 'n'
                          : has_any({"rmi", "rm"})      ? 'm'
                          : has_any({"rpi", "rp"})      ? 'p'
                                                        : 'z';
    if (has("relu")) throw Unsupported{opcode_};
    if (to == "tf32")
      return target() + " = " + library + "to_tf32(" + library + "get<float>(" + argument(1, "f32") + "))";
    if ((to == "f16x2" || to == "bf16x2") && rounding == 'n' && from == "f32") {
      return target() + " = " + library + "cvt_pair<" + type_of(to.substr(0, to.size() - 2)) + ">(" +
             argument(1, "f32") + ", " + argument(2, "f32") + ")";
    }
    const bool is_narrow = to == "f16" || to == "bf16";
    if (type_of(to).empty() || type_of(from).empty() || to.ends_with("x2") ||
        (is_narrow && rounding != 'n' && from[0] == 'f'))
      throw Unsupported{opcode_};
    if (to == from && to[0] == 'f' && has_any({"rni", "rzi", "rmi", "rpi"}))
      return target() + " = " + library + "cvt_to_whole<" + type_of(to) + ">(" + argument(1, from) + ", '" + rounding +
             "')";
    return target() + " = " + library + "cvt<" + type_of(to) + ", " + type_of(from) + ">(" + argument(1, from) + ", '" +
           rounding + "', " + (has("sat") ? "true" : "false") + ")";
  }

  std::string load() {
    const std::string type = type_suffix();
    const Words targets = list(arguments_.at(0));
    if (arguments_.size() < 2 || targets.size() != width() || type_of(type).empty()) throw Unsupported{opcode_};
    std::string code = "void* const from = " + std::string(library) + "aligned(" + address(arguments_[1]) + ", " +
                       std::to_string(width() * bytes_of(type)) + ")";
    if (has_any({"volatile", "relaxed", "acquire"})) knows_others_ = true;  // perhaps it waits for another thread
    if (knows_others_) code += "; ::aiocuda_yield()";
    for (std::size_t i = 0; i < targets.size(); ++i)
      code += "; const auto value_" + std::to_string(i) + " = " + library + "load<" + type_of(type) + ">(from, " +
              std::to_string(i) + ")";
    for (std::size_t i = 0; i < targets.size(); ++i) code += "; " + place(targets[i]) + " = value_" + std::to_string(i);
    return code + (has("acquire") ? "; ::__threadfence_system()" : "");
  }

  std::string store() {
    const std::string type = type_suffix();
    if (arguments_.size() < 2 || type_of(type).empty()) throw Unsupported{opcode_};
    const Words values = list(arguments_[1]);
    if (values.size() != width()) throw Unsupported{opcode_};
    std::string code = has("release") ? "::__threadfence_system(); " : "";
    code += "void* const to = " + std::string(library) + "aligned(" + address(arguments_[0]) + ", " +
            std::to_string(width() * bytes_of(type)) + ")";
    for (std::size_t i = 0; i < values.size(); ++i)
      code += "; " + std::string(library) + "store<" + type_of(type) + ">(to, " + value(values[i], type) + ", " +
              std::to_string(i) + ")";
    return code;
  }

  // "st.async", "red.async": done at once, and then owed no more at the barrier, which is the last operand.
  std::string tells_barrier(const std::string& code, unsigned count) {
    if (!has("mbarrier::complete_tx::bytes") || arguments_.size() != 3) throw Unsupported{opcode_};
    knows_others_ = true;
    return code + "; " + library + "barrier_arrive(" + address(arguments_[2]) + ", 0, 0, -" +
           std::to_string(count * bytes_of(type_suffix())) + ")";
  }

  std::string atomic(bool answers) {
    const std::string type = type_suffix();
    static const std::map<std::string_view, const char*> operations = {
        {"add", "add<"}, {"min", "min<"}, {"max", "max<"}, {"and", "bit_and<"}, {"or", "bit_or<"}, {"xor", "bit_xor<"}};
    const std::size_t first = answers ? 1 : 0;
    if (arguments_.size() <= first || type_of(type).empty() || width() != 1 || has("noftz")) throw Unsupported{opcode_};
    std::string change;
    for (const auto& [name, function] : operations) {
      if (has(name)) change = std::string(library) + function + type_of(type) + ">(old, operand)";
    }
    if (has("exch")) change = "operand";
    if (has("inc")) change = std::string(library) + "wrapping_increment(old, operand)";
    if (has("dec")) change = std::string(library) + "wrapping_decrement(old, operand)";
    std::string code = "const ::aiocuda_device::ptx::Register operand = " + argument(first + 1, type) + "; ";
    if (has("cas")) {
      code += "const ::aiocuda_device::ptx::Register swapped = " + argument(first + 2, type) + "; ";
      const std::string type_name = type_of(type);
      change = std::string(library) + "get<" + type_name + ">(old) == " + library + "get<" + type_name +
               ">(operand) ? swapped : old";
      code += "::aiocuda_yield(); ";
      knows_others_ = true;
    }
    if (change.empty()) throw Unsupported{opcode_};
    code += "const auto before = " + std::string(library) + "update<" + type_of(type) + ">(" +
            address(arguments_[first]) + ", [&](::aiocuda_device::ptx::Register old) { return " + change +
            "; }); (void)before";
    return answers ? code + "; " + target() + " = before" : code;
  }

  std::string convert_address() {
    if (!has_any({"shared", "shared::cta", "shared::cluster"})) return target() + " = " + argument(1);
    if (has("to")) return target() + " = ::__cvta_generic_to_shared((void*)" + argument(1) + ")";
    return target() + " = (::aiocuda_device::ptx::Register)" + library + "shared(" + argument(1) + ")";
  }

  std::string text_;
  std::size_t outputs_;
  std::string code_;
  std::set<std::string> labels_;   // that have been passed
  std::set<std::string> targets_;  // of branches
};

}  // namespace

InlineAssembly translate_assembly(const std::vector<Token>& tokens, std::size_t at) {
  InlineAssembly found;
  std::size_t open = at + 1;
  while (open < tokens.size() && tokens[open].kind == TokenKind::identifier) ++open;
  if (open >= tokens.size() || !tokens[open].is("(")) {
    found.end = open;
    return found;
  }
  found.end = skip_bracket(tokens, open);
  const std::size_t close = found.end - 1;
  std::string text;
  std::size_t i = open + 1;
  for (; i < close && tokens[i].kind == TokenKind::text; ++i) text += literal_text(tokens[i].text);
  found.is_empty = text.find_first_not_of(" \t\n") == std::string::npos;
  if (found.is_empty) return found;
  std::vector<Operand> operands;
  std::size_t outputs = 0;
  for (int section = 0; i < close; ++i) {
    if (tokens[i].is(":") || tokens[i].is("::")) {
      if (section == 1) outputs = operands.size();
      section += tokens[i].is("::") ? 2 : 1;
      continue;
    }
    if (section != 1 && section != 2) continue;
    Operand operand;
    if (tokens[i].is("[") && i + 2 < close) {
      operand.name = tokens[i + 1].text;
      i += 3;
    }
    if (i + 1 >= close || tokens[i].kind != TokenKind::text || !tokens[i + 1].is("(")) continue;
    operand.constraint = tokens[i].text;
    const std::size_t past = skip_bracket(tokens, i + 1);
    for (std::size_t t = i + 1; t < past; ++t) operand.expression += std::string(tokens[t].text) + " ";
    operands.push_back(std::move(operand));
    if (section == 1) outputs = operands.size();
    i = past - 1;
  }
  Translator translator(text, std::move(operands), outputs, tokens[at].line);
  try {
    found.code = translator.run();
  } catch (const Unsupported& unsupported) {
    found.problem =
        "inline PTX: " + unsupported.what +
        " is not supported on the emulated driver (docs/drivers.md has those that are); write it in CUDA C++";
  } catch (const std::exception&) {
    found.problem = "inline PTX: \"" + text + "\" cannot be read";
  }
  found.knows_others = translator.knows_others();
  return found;
}

}  // namespace aiocuda::emulator::nvrtc
