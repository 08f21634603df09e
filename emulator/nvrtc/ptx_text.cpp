// See ptx_text.hpp.
#include "ptx_text.hpp"

#include <algorithm>
#include <cctype>

namespace aiocuda::emulator::nvrtc {

std::string type_of(std::string_view suffix) {
  static const std::map<std::string_view, const char*> types = {{"u8", "unsigned char"}, {"s8", "signed char"},
                                                                {"b8", "unsigned char"}, {"u16", "unsigned short"},
                                                                {"s16", "short"},        {"b16", "unsigned short"},
                                                                {"u32", "unsigned"},     {"s32", "int"},
                                                                {"b32", "unsigned"},     {"u64", "unsigned long long"},
                                                                {"s64", "long long"},    {"b64", "unsigned long long"},
                                                                {"f16", "__half"},       {"bf16", "__nv_bfloat16"},
                                                                {"f16x2", "__half2"},    {"bf16x2", "__nv_bfloat162"},
                                                                {"f32", "float"},        {"f64", "double"}};
  const auto found = types.find(suffix);
  return found == types.end() ? std::string{} : found->second;
}

unsigned bytes_of(std::string_view suffix) {
  const std::size_t digits = suffix.find_first_of("0123456789");
  const unsigned bits =
      digits == std::string_view::npos ? 32 : static_cast<unsigned>(std::stoul(std::string(suffix.substr(digits))));
  return bits / 8 * (suffix.ends_with("x2") ? 2 : 1);
}

Words split(std::string_view text, char separator) {
  Words parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(std::move(part));
      part.clear();
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0 || separator == ':') {
      part += c;
    }
  }
  if (!part.empty() || !parts.empty()) parts.push_back(std::move(part));
  return parts;
}

std::string literal_text(std::string_view token) {
  std::string text;
  const std::size_t open = token.find('"');
  if (open > 0 && token[open - 1] == 'R') {
    const std::size_t begin = token.find('(', open);
    const std::size_t end = token.rfind(')');
    return std::string(token.substr(begin + 1, end - begin - 1));
  }
  for (std::size_t i = open + 1; i + 1 < token.size(); ++i) {
    if (token[i] != '\\') {
      text += token[i];
    } else if (++i + 1 < token.size()) {
      text += token[i] == 'n' || token[i] == 't' || token[i] == 'r' ? ' ' : token[i];
    }
  }
  return text;
}

std::string without_comments(std::string_view text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.substr(i, 2) == "/*") {
      i = std::min(text.find("*/", i), text.size() - 2) + 1;
      continue;
    }
    if (i < text.size()) kept += text[i];
  }
  return kept;
}

const std::map<std::string_view, std::string_view>& special_registers() {
  static const std::map<std::string_view, std::string_view> known = {
      {"laneid", "::aiocuda_lane()"},
      {"warpid", "::aiocuda_warp_index()"},
      {"lanemask_eq", "(1u << ::aiocuda_lane())"},
      {"lanemask_lt", "((1u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_le", "((2u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_gt", "(unsigned)~((2u << ::aiocuda_lane()) - 1u)"},
      {"lanemask_ge", "(unsigned)~((1u << ::aiocuda_lane()) - 1u)"},
      {"globaltimer", "::aiocuda_clock_ns()"},
      {"globaltimer_lo", "(unsigned)::aiocuda_clock_ns()"},
      {"clock64", "::aiocuda_clock_ns()"},
      {"clock", "(unsigned)::aiocuda_clock_ns()"},
      {"smid", "0"},
      {"nsmid", "1"},
      {"dynamic_smem_size", "::aiocuda_dynamic_shared_bytes()"},
      {"tid.x", "threadIdx.x"},
      {"tid.y", "threadIdx.y"},
      {"tid.z", "threadIdx.z"},
      {"ntid.x", "blockDim.x"},
      {"ntid.y", "blockDim.y"},
      {"ntid.z", "blockDim.z"},
      {"ctaid.x", "blockIdx.x"},
      {"ctaid.y", "blockIdx.y"},
      {"ctaid.z", "blockIdx.z"},
      {"nctaid.x", "gridDim.x"},
      {"nctaid.y", "gridDim.y"},
      {"nctaid.z", "gridDim.z"},
      {"is_explicit_cluster", "::__clusterDimIsSpecified()"},
      {"clusterid.x", "::__clusterIdx().x"},
      {"clusterid.y", "::__clusterIdx().y"},
      {"clusterid.z", "::__clusterIdx().z"},
      {"nclusterid.x", "::__clusterGridDimInClusters().x"},
      {"nclusterid.y", "::__clusterGridDimInClusters().y"},
      {"nclusterid.z", "::__clusterGridDimInClusters().z"},
      {"cluster_ctaid.x", "::__clusterRelativeBlockIdx().x"},
      {"cluster_ctaid.y", "::__clusterRelativeBlockIdx().y"},
      {"cluster_ctaid.z", "::__clusterRelativeBlockIdx().z"},
      {"cluster_nctaid.x", "::__clusterDim().x"},
      {"cluster_nctaid.y", "::__clusterDim().y"},
      {"cluster_nctaid.z", "::__clusterDim().z"},
      {"cluster_ctarank", "::__clusterRelativeBlockRank()"},
      {"cluster_nctarank", "::__clusterSizeInBlocks()"},
  };
  return known;
}

}  // namespace aiocuda::emulator::nvrtc
