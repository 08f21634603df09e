// See view.hpp. The rules are those of cuTexObjectCreate in cuda.h's documentation.
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
  if (asked == CU_RES_VIEW_FORMAT_NONE) return CUDA_SUCCESS;
  if (asked < CU_RES_VIEW_FORMAT_NONE || asked > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return CUDA_ERROR_INVALID_VALUE;
  if (asked >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1) return CUDA_ERROR_NOT_SUPPORTED;
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
  if (view.firstMipmapLevel > view.lastMipmapLevel || view.lastMipmapLevel >= sampler.levels.size())
    return CUDA_ERROR_INVALID_VALUE;
  if (array.is_layered() && array.is_cube()) return CUDA_ERROR_NOT_SUPPORTED;
  const std::size_t layers = array.is_layered() ? array.slices() : 1;
  if (view.firstLayer > view.lastLayer || view.lastLayer >= layers) return CUDA_ERROR_INVALID_VALUE;
  sampler.levels = {sampler.levels.begin() + view.firstMipmapLevel, sampler.levels.begin() + view.lastMipmapLevel + 1};
  if (!array.is_layered()) return CUDA_SUCCESS;
  for (Level& level : sampler.levels) {
    level.texels += view.firstLayer * level.slice_bytes;
    level.depth = static_cast<int>(view.lastLayer - view.firstLayer + 1);
  }
  return CUDA_SUCCESS;
}

}  // namespace aiocuda::emulator::texture
