// See rewrite.hpp. Every change is an edit of the text at a token; lines that are added are followed by a
// marker that sets the number right, so the compiler's line numbers are the user's.
#include "rewrite.hpp"

#include <algorithm>
#include <optional>

#include "casts.hpp"
#include "constants.hpp"
#include "declarations.hpp"
#include "device_variables.hpp"
#include "directives.hpp"
#include "edits.hpp"
#include "extensions.hpp"
#include "grid_constants.hpp"
#include "guard.hpp"
#include "host_code.hpp"
#include "kernel_table.hpp"
#include "names.hpp"
#include "nvidia_headers.hpp"
#include "polling.hpp"
#include "ptx.hpp"
#include "redefinitions.hpp"
#include "shared_variables.hpp"
#include "split.hpp"
#include "unsupported.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr const char* place_names[] = {"threadIdx", "blockIdx", "blockDim", "gridDim"};
constexpr int cuda_error_not_supported = 801;
constexpr std::size_t longest_loop_to_inline = 250;  // tokens; more cannot be vectorised across threads anyway

class Rewriter {
 public:
  explicit Rewriter(const RewriteRequest& request)
      : request_(request),
        source_(tokenize(request.preprocessed)),
        tokens_(source_.tokens),
        nvidia_(source_),
        declarations_(find_declarations(tokens_)),
        polling_(tokens_, declarations_),
        waiting_(waiting_names(tokens_, declarations_, polling_, defined_elsewhere())),
        used_(used_names(tokens_, declarations_, roots())) {
    functions_use_place_ = request.is_relocatable || any_function_uses_place();
  }

  Rewritten run() {
    edit_directives(source_.directives, request_.for_clang, edits_, result_.includes);
    unnamed_namespaces();
    for (const Declaration& d : declarations_) {
      if (is_kernel(d)) {
        kernel(d);
      } else if (d.is_function) {
        function(d);
      } else {
        variables_.edit(d);
      }
      const bool used = is_used(d);
      if (!used && nvidia_.empty_body(d, edits_)) continue;
      variables_.list_constants_of(d);
      for (const std::size_t initialised : shared_variables_.edit(d))
        report(tokens_[initialised], "initializer not allowed for __shared__ variable");
      polling_.edit(d, edits_);
      unsupported(d, used);
    }
    if (std::any_of(tokens_.begin(), tokens_.end(), [](const Token& token) { return is_of_textures(token.text); }))
      result_.includes.emplace_back("\"aiocuda_cuda_cpp/texture.hpp\"");
    if (nvidia_.are_included()) {
      result_.includes.emplace_back("\"aiocuda_cuda_cpp/nvidia_headers.hpp\"");
      nvidia_.lower_alignments(edits_);
      nvidia_.qualify_templates(declarations_, edits_);
      nvidia_.define_refusals(declarations_, edits_);
      nvidia_.name_offsets(edits_);
    }
    if (!request_.allows_host_code) host_code();
    result_.includes_nvidia = nvidia_.are_included();
    for (const std::string& expression : request_.name_expressions)
      table_.list_expression(expression, waiting_, functions_use_place_);
    result_.files = source_.files;
    result_.casts_pointers = casts_pointers(tokens_);
    result_.text = make_way(tokens_, declarations_) + edits_.made_to(request_.preprocessed) +
                   table_.text(request_.unit, variables_.table_of_constants());
    return std::move(result_);
  }

 private:
  std::string_view text(Range range) const {
    if (range.empty()) return {};
    const Token& last = tokens_[range.end - 1];
    const std::size_t begin = tokens_[range.begin].offset;
    return request_.preprocessed.substr(begin, last.offset + last.text.size() - begin);
  }

  // The same on one line and without directives.
  std::string one_line(Range range) const {
    std::string joined;
    for (std::size_t i = range.begin; i < range.end; ++i) joined += std::string(tokens_[i].text) + " ";
    return joined;
  }

  // Text of our own behind a token, kept off the user's line so that messages do not quote it.
  void insert_aside(const Token& token, const std::string& inserted) {
    edits_.after(token, aside(token, source_.files, inserted));
  }

  bool has(Range range, std::string_view word) const { return find(range, word) != range.end; }
  std::size_t find(Range range, std::string_view word) const {
    std::size_t i = range.begin;
    while (i < range.end && !tokens_[i].is(word)) ++i;
    return i;
  }

  bool is_kernel(const Declaration& d) const { return d.is_function && has({d.all.begin, d.name.begin}, "__global__"); }

  bool any_function_uses_place() const {
    return std::any_of(declarations_.begin(), declarations_.end(), [&](const Declaration& d) {
      return !is_kernel(d) && std::any_of(std::begin(place_names), std::end(place_names),
                                          [&](const char* name) { return has(d.all, name); });
    });
  }

  // Functions that another unit of the module may define: nobody knows here whether they wait.
  Names defined_elsewhere() const {
    Names names;
    if (!request_.is_relocatable) return names;
    for (const Declaration& d : declarations_) {
      if (d.is_function && d.body.empty() && !is_kernel(d)) names.insert(tokens_[unqualified(d.name).begin].text);
    }
    for (const Declaration& d : declarations_) {
      if (d.is_function && !d.body.empty()) names.erase(tokens_[unqualified(d.name).begin].text);
    }
    return names;
  }

  // The host's compiler gives what is in an unnamed namespace no symbol; NVRTC does.
  void unnamed_namespaces() {
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (tokens_[i].is("namespace") && tokens_[i + 1].is("{"))
        edits_.replace(tokens_[i],
                       "inline namespace aiocuda_unnamed" + (request_.is_relocatable ? "_" + request_.unit : ""));
    }
  }

  // ---- kernels

  void kernel(const Declaration& d) {
    const Range head{d.all.begin, d.name.begin};
    const Token& qualifier = tokens_[find(head, "__global__")];
    for (std::size_t i = head.begin; i < head.end; ++i) {
      if (tokens_[i].is("static")) edits_.blank(tokens_[i]);
    }
    const bool is_split = may_be_split(d) && split_at_barriers(tokens_, declarations_, d, source_.files, edits_);
    const bool waits = !is_split && waits_in(d);
    const bool defines = !d.body.empty();
    if (defines && !waits && (is_split || worth_inlining(d.body))) edits_.replace(qualifier, "__direct__");
    grid_constants(d);
    if (!defines && !d.is_explicit_instantiation) return;
    if (defines) place(d, waits);

    KernelDeclaration k;
    const Range plain_name = unqualified(d.name);
    k.name = tokens_[plain_name.begin].text;
    k.is_template = !d.template_header.empty();
    k.is_overloaded = is_overloaded(k.name);
    k.runs_as_fibers = waits;
    k.is_split = is_split;
    result_.has_split = result_.has_split || is_split;
    k.has_grid_constants = has_grid_constants(tokens_, d.parameters);
    k.functions_use_place = functions_use_place_ || (defines && place_is_hidden(d.body));
    k.bounds = first_of(attribute_arguments(d, "__launch_bounds__"));
    if (const Range extents = attribute_arguments(d, "__cluster_dims__"); !extents.empty())
      k.cluster = "::aiocuda_device::cluster_of(" + one_line(extents) + ")";
    k.guard = defines && !waits && !is_split && worth_inlining(d.body) ? guard(d) : -1;
    const std::string index = std::to_string(table_.next());
    const Token& last = tokens_[d.all.end - 1];
    if (k.is_template) {
      const auto answered = [&](std::string& value, const char* type, const std::string& name) {
        if (value.empty()) return;
        insert_aside(last, one_line(d.template_header) + "constexpr " + type + " " + name + "() { return (" + type +
                               ")(" + value + "); }");
        value = d.name_space + "::" + name;
      };
      answered(k.bounds, "unsigned", "aiocuda_launch_bounds_" + index);
      answered(k.cluster, "unsigned long long", "aiocuda_cluster_dims_" + index);
    } else {
      const std::string overload = "static_cast<void (*)(" + parameter_types(d) + ")>(&" + one_line(d.name) + ")";
      insert_aside(last, "using aiocuda_kernel_" + index + " = ::aiocuda_device::Kernel<" +
                             (k.is_overloaded ? overload : "&" + one_line(d.name)) + ", " +
                             std::to_string(flags_of(k)) + ", " +
                             (k.bounds.empty() ? "1024" : "(unsigned)(" + k.bounds + ")") + ", " +
                             std::to_string(k.guard) + ", " + (k.cluster.empty() ? "0" : k.cluster) + ">;");
      table_.list(d.name_space + "::aiocuda_kernel_" + index, k.name);
      ++result_.kernel_count;
    }
    table_.add(std::move(k));
  }

  // A kernel made of a template and a static function would have no symbol. Of units that are linked, each keeps its
  // own static functions and variables.
  void function(const Declaration& d) {
    if (request_.is_relocatable) return;
    const Range head{d.all.begin, d.name.begin};
    const bool is_inline =
        has(head, "inline") || has(head, "__inline__") || has(head, "__forceinline__") || has(head, "constexpr");
    for (std::size_t i = head.begin; i < head.end; ++i) {
      if (tokens_[i].is("static")) edits_.replace(tokens_[i], is_inline ? "      " : "inline");
    }
  }

  bool waits_in(const Declaration& d) const {
    return uses_any(tokens_, d.body.empty() ? d.all : d.body, waiting_) || uses_any(tokens_, d.parameters, waiting_) ||
           waiting_.contains("__global__") || waiting_.contains(tokens_[unqualified(d.name).begin].text) ||
           polling_.occurs_in(d);
  }

  // It waits at barriers and nowhere else, and its functions do not ask which thread runs.
  bool may_be_split(const Declaration& d) const {
    if (!request_.may_split || d.body.empty() || !d.template_header.empty() || has(d.body, "volatile")) return false;
    if (request_.checked || request_.is_relocatable) return false;
    if (functions_use_place_ || place_is_hidden(d.body) || polling_.occurs_in(d) || !has(d.body, "__syncthreads"))
      return false;
    Names others = waiting_;
    others.erase("__syncthreads");
    return !uses_any(tokens_, d.body, others) && !uses_any(tokens_, d.parameters, waiting_) &&
           !is_overloaded(std::string(tokens_[unqualified(d.name).begin].text));
  }

  int guard(const Declaration& d) {
    const std::optional<Guard> found = find_guard(tokens_, d);
    if (!found) return -1;
    edits_.before(tokens_[found->condition.begin],
                  found->returns ? "!::aiocuda_device::direct::inside && (" : "::aiocuda_device::direct::inside || (");
    edits_.after(tokens_[found->condition.end - 1], ")");
    return static_cast<int>(found->parameter);
  }

  bool worth_inlining(Range body) const {
    const bool loops = has(body, "for") || has(body, "while") || has(body, "do");
    return !loops || body.end - body.begin <= longest_loop_to_inline;
  }

  Range unqualified(Range name) const {
    Range last = name;
    for (std::size_t i = name.begin; i < name.end && !tokens_[i].is("<"); ++i) {
      if (tokens_[i].kind == TokenKind::identifier) last.begin = i;
    }
    return last;
  }

  bool is_overloaded(const std::string& name) const {
    std::size_t count = 0;
    for (const Declaration& d : declarations_) {
      if (is_kernel(d) && !d.body.empty() && tokens_[unqualified(d.name).begin].is(name)) ++count;
    }
    return count > 1;
  }

  std::string parameter_types(const Declaration& d) const {
    const Range parameters = d.parameters;
    const std::vector<std::size_t> references = references_of_pack(d);
    const auto is_reference = [&](std::size_t i) {
      return std::find(references.begin(), references.end(), i) != references.end();
    };
    std::string types;
    for (std::size_t i = parameters.begin; i < parameters.end;) {
      if (is_reference(i)) types += "& ";
      if (tokens_[i].is("=")) {  // a default argument
        while (i < parameters.end && !tokens_[i].is(",")) {
          i = tokens_[i].is("(") || tokens_[i].is("{") ? skip_bracket(tokens_, i) : i + 1;
        }
        continue;
      }
      types += std::string(tokens_[i].text) + " ";
      ++i;
    }
    if (is_reference(parameters.end)) types += '&';
    return types;
  }

  // What stands in the parentheses of an attribute of a kernel.
  Range attribute_arguments(const Declaration& d, std::string_view attribute) const {
    const std::size_t at = find({d.all.begin, d.name.begin}, attribute);
    if (at == d.name.begin || !tokens_[at + 1].is("(")) return {};
    return {at + 2, skip_bracket(tokens_, at + 1) - 1};
  }
  std::string first_of(Range arguments) const {
    std::size_t end = arguments.begin;
    while (end < arguments.end && !tokens_[end].is(",")) {
      end = tokens_[end].is("(")   ? skip_bracket(tokens_, end)
            : tokens_[end].is("<") ? skip_angles(tokens_, end)
                                   : end + 1;
    }
    return one_line({arguments.begin, end});
  }

  // A kernel begins with copies of what it uses of its place, which the compiler can keep in registers.
  void place(const Declaration& d, bool waits) {
    if (place_is_hidden(d.body)) return;
    const bool asserts = has(d.body, "assert");
    std::string copies;
    for (const char* name : place_names) {
      const std::string word = name;
      const bool is_asserted = asserts && (word == "threadIdx" || word == "blockIdx");
      if (!has(d.body, word) && !is_asserted) continue;
      const bool is_extent = word == "blockDim" || word == "gridDim";
      const std::string of_loop = word == "threadIdx"  ? "thread"
                                  : word == "blockIdx" ? "block"
                                  : word == "blockDim" ? "extent"
                                                       : "grid";
      const std::string from = waits ? "::" + word : "::aiocuda_device::direct::" + of_loop;
      // Member by member, for the reason that kernel.hpp gives.
      copies += std::string(is_extent ? " const ::dim3 " : " const ::uint3 ") + word + "{" + from + ".x, " + from +
                ".y, " + from + ".z};";
    }
    if (!copies.empty()) insert_aside(tokens_[d.body.begin], copies);
  }

  void grid_constants(const Declaration& d) {
    if (!has_grid_constants(tokens_, d.parameters)) return;
    const std::optional<std::size_t> pack = pack_in_template_of(d);
    for (const std::size_t at : references_of_pack(d)) edits_.before(tokens_[at], "& ");
    if (d.body.empty()) return;
    GridConstants made = make_grid_constants(tokens_, d, pack, edits_);
    if (pack) made.checks += check_of_pack(tokens_, d, *pack);
    if (made.references.empty() && made.checks.empty()) return;
    // A check that fails is an error where the parameters begin.
    const std::string at_parameters = on_line_of(tokens_[d.parameters.begin - 1], source_.files);
    insert_aside(tokens_[d.body.begin], made.references + at_parameters + made.checks);
  }

  std::vector<std::size_t> references_of_pack(const Declaration& d) const {
    const std::optional<std::size_t> pack = pack_in_template_of(d);
    return pack ? nvrtc::references_of_pack(tokens_, d, *pack) : std::vector<std::size_t>{};
  }

  // Where the kernel, or the template that it is an instance of, has a pack of grid constants.
  std::optional<std::size_t> pack_in_template_of(const Declaration& d) const {
    const std::string_view name = tokens_[unqualified(d.name).begin].text;
    for (const Declaration& each : declarations_) {
      if (!is_kernel(each) || each.template_header.empty() || !tokens_[unqualified(each.name).begin].is(name)) continue;
      if (const auto pack = pack_of_grid_constants(tokens_, each)) return pack;
    }
    return std::nullopt;
  }

  // Lambdas that capture nothing and local classes cannot see a local copy.
  bool place_is_hidden(Range body) const {
    for (std::size_t i = body.begin + 1; i < body.end; ++i) {
      if (tokens_[i].is("struct") || tokens_[i].is("class") || tokens_[i].is("union")) return true;
      if (!tokens_[i].is("[")) continue;
      const Token& before = tokens_[i - 1];
      const bool indexes = before.kind == TokenKind::identifier ? !before.is("return")
                                                                : before.is(")") || before.is("]") || before.is(">");
      if (!indexes) return true;
    }
    return false;
  }

  // ---- what cannot be

  // The names in the name expressions: the caller of the compiler uses what they name.
  Names roots() const {
    Names names;
    for (const std::string& expression : request_.name_expressions) {
      for (const Token& token : tokenize(expression).tokens) names.insert(token.text);
    }
    return names;
  }

  bool is_used(const Declaration& d) const {
    const Names names = declared_names(tokens_, d);
    return !d.is_function || is_kernel(d) || has(d.name, "operator") ||
           std::any_of(names.begin(), names.end(), [&](auto name) { return used_.contains(name); });
  }

  void unsupported(const Declaration& d, bool is_used) {
    for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
      const Token& token = tokens_[i];
      if (token.is("asm") || token.is("__asm__") || token.is("__asm")) {
        i = assembly(i, is_used) - 1;
      } else if (const std::string_view why = why_unsupported(token.text); !why.empty() && is_used) {
        report(token, std::string(why));
      }
    }
  }

  // Says where the statement ends.
  std::size_t assembly(std::size_t at, bool is_used) {
    const Token& token = tokens_[at];
    const InlineAssembly found = translate_assembly(tokens_, at);
    if (found.is_empty) return found.end;
    if (is_used && !found.problem.empty()) report(token, found.problem);
    const bool is_kept = found.problem.empty() && (is_used || !nvidia_.have(token));
    const std::string code = is_kept ? found.code : failure(token, found.problem);
    for (std::size_t t = at; t < found.end; ++t) edits_.replace(tokens_[t], t == at ? code : "");
    const std::string header = "\"aiocuda_cuda_cpp/ptx.hpp\"";
    if (std::find(result_.includes.begin(), result_.includes.end(), header) == result_.includes.end())
      result_.includes.push_back(header);
    return found.end;
  }

  // What runs in place of an instruction that is not supported, where the program may have it without running it.
  std::string failure(const Token& token, const std::string& problem) const {
    std::string what = problem.empty() ? "inline PTX that no kernel was found to use" : problem;
    std::replace(what.begin(), what.end(), '\n', ' ');
    return "::aiocuda_fail(" + std::to_string(cuda_error_not_supported) + ", \"" +
           escaped(source_.files[token.file] + ":" + std::to_string(token.line) + ": " + what) + "\")";
  }

  void report(const Token& token, std::string message) {
    if (nvidia_.have(token)) return;
    const bool is_known = std::any_of(result_.problems.begin(), result_.problems.end(),
                                      [&](const Problem& p) { return p.line == token.line && p.message == message; });
    if (is_known) return;
    const std::string_view text = request_.preprocessed;
    const std::size_t begin = token.offset == 0 ? 0 : text.rfind('\n', token.offset - 1) + 1;
    const std::string_view line = text.substr(begin, text.find('\n', token.offset) - begin);
    result_.problems.push_back(
        {source_.files[token.file], token.line, std::move(message), std::string(line), token.offset - begin});
  }

  void host_code() {
    std::vector<HostCode> all = find_host_code({tokens_, declarations_, result_.includes, request_.is_default_device});
    const auto add = [&](const std::vector<HostCode>& more) { all.insert(all.end(), more.begin(), more.end()); };
    add(find_extensions({source_, declarations_, request_.cpp_standard, request_.has_int128}));
    add(find_writes_to_constants(tokens_, declarations_));
    add(find_misplaced_grid_constants(tokens_, declarations_));
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    for (const HostCode& each : all) report(tokens_[each.token], each.message);
  }

  const RewriteRequest& request_;
  TokenizedSource source_;
  const std::vector<Token>& tokens_;
  NvidiaHeaders nvidia_;
  std::vector<Declaration> declarations_;
  Polling polling_;
  Names waiting_;
  Names used_;
  bool functions_use_place_ = false;
  Edits edits_;
  DeviceVariables variables_{tokens_, declarations_, source_.files, request_.is_relocatable, edits_};
  SharedVariables shared_variables_{tokens_, request_.checked, edits_};
  KernelTable table_;
  Rewritten result_;
};

}  // namespace

Rewritten rewrite(const RewriteRequest& request) { return Rewriter(request).run(); }

}  // namespace aiocuda::emulator::nvrtc
