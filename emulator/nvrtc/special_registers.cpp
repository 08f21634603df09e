// See special_registers.hpp.
#include "special_registers.hpp"

#include <map>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

const std::map<std::string_view, std::string_view>& registers() {
  static const std::map<std::string_view, std::string_view> known = {
      {"laneid", "::aiocuda_lane()"},
      {"warpid", "::aiocuda_warp_index()"},
      {"lanemask_eq", "(1u << ::aiocuda_lane())"},
      {"lanemask_lt", "((1u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_le", "((2u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_gt", "~((2u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_ge", "~((1u << ::aiocuda_lane()) - 1u)"},
      {"globaltimer", "::aiocuda_clock_ns()"},
      {"clock64", "::aiocuda_clock_ns()"},
      {"clock", "::aiocuda_clock_ns()"},
      {"smid", "0"},
      {"nsmid", "1"},
  };
  return known;
}

}  // namespace

std::optional<RegisterRead> register_read(const std::vector<Token>& tokens, std::size_t at) {
  std::size_t open = at + 1;
  while (open < tokens.size() && tokens[open].kind == TokenKind::identifier) ++open;
  if (open + 6 >= tokens.size() || !tokens[open].is("(")) return std::nullopt;
  const Token* parts = &tokens[open + 1];  // "mov.u32 %0, %laneid;" : "=r" ( x )
  if (parts[0].kind != TokenKind::text || !parts[1].is(":") || !parts[2].text.starts_with("\"=") || !parts[3].is("("))
    return std::nullopt;
  const std::size_t past = skip_bracket(tokens, open + 4);
  const std::size_t end = skip_bracket(tokens, open) - 1;
  if (past != end && !tokens[past].is(":") && !tokens[past].is("::")) return std::nullopt;
  for (std::size_t i = past; i < end; ++i) {  // only clobbers may follow
    if (!tokens[i].is(":") && !tokens[i].is("::") && tokens[i].text != "\"memory\"") return std::nullopt;
  }
  const std::string_view text = parts[0].text;
  const std::size_t name = text.rfind('%');
  const std::size_t name_end = text.find(';');
  if (!text.starts_with("\"mov.") || text.find("%0") == std::string_view::npos || name_end == std::string_view::npos ||
      name > name_end || text.find(';', name_end + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto known = registers().find(text.substr(name + 1, name_end - name - 1));
  if (known == registers().end()) return std::nullopt;
  return RegisterRead{open + 5, past - 1, std::string(known->second)};
}

}  // namespace aiocuda::emulator::nvrtc
