// See view.hpp. The rules are an H100's: its driver, 580, was asked about each. A view must name a format. Its extents
// are the array's own. Its last layer or level may lie beyond the array's, if the array has layers or levels.
#include "texture/view.hpp"

#include <algorithm>
#include <iterator>

namespace aiocuda::emulator::texture {
namespace {

// In groups of three: of 1, 2 and 4 channels.
constexpr CUarray_format element_formats[] = {
    CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
    CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};

CUresult read_format(CUresourceViewFormat asked, Format& format) {
  if (asked <= CU_RES_VIEW_FORMAT_NONE || asked > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return CUDA_ERROR_INVALID_VALUE;
  if (asked >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1) {
    const bool may_be_blocks = format.format == CU_AD_FORMAT_UNSIGNED_INT32 && format.channels >= 2;
    return may_be_blocks ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  const auto number = static_cast<unsigned>(asked - CU_RES_VIEW_FORMAT_UINT_1X8);
  const Format found{element_formats[number / 3], 1u << number % 3};
  if (found.texel_bytes() != format.texel_bytes()) return CUDA_ERROR_INVALID_VALUE;
  format = found;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, const Array& array, Sampler& sampler) {
  const CUDA_ARRAY3D_DESCRIPTOR& whole = array.description();
  const bool is_unknown =
      std::any_of(std::begin(view.reserved), std::end(view.reserved), [](auto x) { return x != 0; });
  if (is_unknown || view.width != whole.Width || view.height != whole.Height || view.depth != whole.Depth)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = read_format(view.format, sampler.format)) return error;
  const bool has_levels = sampler.levels.size() > 1;
  if (view.firstMipmapLevel > view.lastMipmapLevel || (!has_levels && view.lastMipmapLevel != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (array.is_layered() && array.is_cube()) return CUDA_ERROR_NOT_SUPPORTED;
  if (view.firstLayer > view.lastLayer || (!array.is_layered() && view.lastLayer != 0)) return CUDA_ERROR_INVALID_VALUE;
  const auto last_level = static_cast<unsigned>(sampler.levels.size()) - 1;
  const auto begin = sampler.levels.begin();
  sampler.levels = {begin + std::min(view.firstMipmapLevel, last_level),
                    begin + std::min(view.lastMipmapLevel, last_level) + 1};
  if (!array.is_layered()) return CUDA_SUCCESS;
  const auto last_layer = static_cast<unsigned>(array.slices()) - 1;
  const unsigned first = std::min(view.firstLayer, last_layer);
  for (Level& level : sampler.levels) {
    level.texels += first * level.slice_bytes;
    level.depth = static_cast<int>(std::min(view.lastLayer, last_layer) - first + 1);
  }
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::emulator::texture
