// Views of arrays: a texture reads some levels and layers of an array, and its texels as another format of their size.
#pragma once
#include "texture/array.hpp"
#include "texture/sampling.hpp"

namespace aiocuda::emulator::texture {

// Narrows the levels of the sampler, which are those of the array, to the view. INVALID_VALUE: the array has neither
// levels nor layers, or other extents, or texels of another size. NOT_SUPPORTED: compressed formats, cubes in layers.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, const Array& array, Sampler& sampler);

}  // namespace aiocuda::emulator::texture
