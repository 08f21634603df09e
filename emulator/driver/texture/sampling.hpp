// What a texture answers for coordinates: NVIDIA's formulas ("Texture Fetching" in its programming guide). Pure: it
// reads texels and decides nothing else.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "abi/texture_abi.hpp"
#include "texture/format.hpp"

namespace aiocuda::emulator::texture {

// The texels of one level.
struct Level {
  const std::byte* texels = nullptr;
  std::size_t row_bytes = 0, slice_bytes = 0;
  int width = 1, height = 1, depth = 1;  // layers are depth
};

struct Sampler {
  Format format;
  bool is_linear_memory = false;  // of a buffer, for tex1Dfetch
  bool reads_floats = false;      // integers are made floats
  bool is_srgb = false;
  bool is_normalised = false;  // coordinates are
  bool filters_linearly = false, filters_levels_linearly = false;
  std::array<CUaddress_mode, 3> address_modes{};
  std::array<float, 4> border{};
  float level_bias = 0, least_level = 0, greatest_level = 0;
  std::vector<Level> levels;
};

// Who is told which bytes are read; does nothing by default.
using Reading = void (*)(const void* address, std::size_t bytes);

void sample(const Sampler& sampler, abi::TextureFetch& fetch, Reading reading);

}  // namespace aiocuda::emulator::texture
