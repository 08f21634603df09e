// See sampling.hpp. A coordinate is taken to 256ths of a texel, as the hardware takes it, so that a weight has 8 bits
// behind the point (and can be 1).
#include "texture/sampling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace aiocuda::emulator::texture {
namespace {

constexpr int fraction = 256;
constexpr int outside = -1;  // a texel of the border

// Where coordinates that are infinite, or no number, do no harm.
constexpr double farthest = 1 << 28;

double tamed(double value) { return std::isnan(value) ? 0 : std::clamp(value, -farthest, farthest); }

// The coordinate in texels. A clamped one ends at an edge, in texels from the texture's border.
double in_texels(const Sampler& sampler, CUaddress_mode mode, float given, int extent, double edge) {
  const double place = tamed(given) * (sampler.is_normalised ? extent : 1);
  const bool is_unbounded =
      mode == CU_TR_ADDRESS_MODE_BORDER || (sampler.is_normalised && mode != CU_TR_ADDRESS_MODE_CLAMP);
  if (is_unbounded) return place;
  return std::clamp(place, edge, extent - edge);
}

// Wrapped and mirrored indices are brought into the texture, where coordinates are normalised.
int texel_at(const Sampler& sampler, CUaddress_mode mode, std::int64_t index, int extent) {
  if (index >= 0 && index < extent) return static_cast<int>(index);
  if (mode == CU_TR_ADDRESS_MODE_BORDER) return outside;
  const auto modulo = [index](std::int64_t period) { return static_cast<int>((index % period + period) % period); };
  if (sampler.is_normalised && mode == CU_TR_ADDRESS_MODE_WRAP) return modulo(extent);
  if (sampler.is_normalised && mode == CU_TR_ADDRESS_MODE_MIRROR) {
    const int there_and_back = modulo(2 * static_cast<std::int64_t>(extent));
    return std::min(there_and_back, 2 * extent - 1 - there_and_back);
  }
  return index < 0 ? 0 : extent - 1;
}

// The two texels along one dimension, and the weight of the second one in 256ths.
struct Neighbours {
  int first = 0, second = 0;
  int weight = 0;
};

enum class For { nearest, filter, gather };

Neighbours neighbours(const Sampler& sampler, int dimension, float coordinate, int extent, For use) {
  const CUaddress_mode mode = sampler.address_modes[static_cast<std::size_t>(dimension)];
  // In a filter, no texel but the last one has a weight beyond its middle.
  const double place = in_texels(sampler, mode, coordinate, extent, use == For::filter ? 0.5 : 0);
  if (use == For::nearest) {
    const auto index = static_cast<std::int64_t>(std::floor(place));
    const int texel = texel_at(sampler, mode, index, extent);
    return {texel, texel, 0};
  }
  const auto fixed = static_cast<std::int64_t>(std::floor(place * fraction + 0.5)) - fraction / 2;
  const std::int64_t index = fixed >> 8;
  return {texel_at(sampler, mode, index, extent), texel_at(sampler, mode, index + 1, extent),
          static_cast<int>(fixed & (fraction - 1))};
}

const std::byte* address_of(const Sampler& sampler, const Level& level, int x, int y, int z) {
  return level.texels + static_cast<std::size_t>(z) * level.slice_bytes +
         static_cast<std::size_t>(y) * level.row_bytes + static_cast<std::size_t>(x) * sampler.format.texel_bytes();
}

using Floats = std::array<float, 4>;

float from_srgb(float value) { return value <= 0.04045F ? value / 12.92F : std::pow((value + 0.055F) / 1.055F, 2.4F); }

Floats floats_at(const Sampler& sampler, const Level& level, int x, int y, int z, Reading reading) {
  if (x == outside || y == outside || z == outside) return sampler.border;
  const std::byte* const texel = address_of(sampler, level, x, y, z);
  if (reading != nullptr) reading(texel, sampler.format.texel_bytes());
  Floats found{};
  for (unsigned each = 0; each < sampler.format.channels; ++each) {
    found[each] = float_of(sampler.format, texel + each * sampler.format.element_bytes());
    if (sampler.is_srgb && each < 3) found[each] = from_srgb(found[each]);
  }
  return found;
}

// A texel's elements as they are. The border's colour is given as floats; of integers its bits count.
std::array<std::uint32_t, 4> bits_at(const Sampler& sampler, const Level& level, const std::array<int, 3>& at,
                                     Reading reading) {
  std::array<std::uint32_t, 4> bits{};
  if (std::ranges::find(at, outside) != at.end()) {
    std::ranges::transform(sampler.border, bits.begin(), [](float each) { return std::bit_cast<std::uint32_t>(each); });
    return bits;
  }
  const std::byte* const address = address_of(sampler, level, at[0], at[1], at[2]);
  if (reading != nullptr) reading(address, sampler.format.texel_bytes());
  for (unsigned each = 0; each < sampler.format.channels; ++each)
    bits[each] = bits_of(sampler.format, address + each * sampler.format.element_bytes());
  return bits;
}

struct TexturePlace {
  std::array<float, 3> coordinates{};
  int dimensions = 1;
  int slice = 0;  // the layer or face, where the third dimension is none of space
};

// A part of a weight, to the nearest; a half goes up.
int part_of(int weight, int share) { return (weight * share + fraction / 2) / fraction; }

// The weights of the corners, in 256ths, by bits for x, y and z. They are whole, as the hardware's are. It rounds those
// of x and z first, and divides each along y. Measured on an H100: all of 56,000 weights are these.
std::array<int, 8> corner_weights(const std::array<Neighbours, 3>& along) {
  const int x = along[0].weight, y = along[1].weight, z = along[2].weight;
  std::array<int, 8> weights{};
  for (const unsigned behind : {0U, 1U}) {
    const int layer = behind != 0 ? z : fraction - z;
    const int right = part_of(x, layer), left = layer - right;
    const unsigned corner = behind << 2;
    weights[corner | 3] = part_of(right, y);
    weights[corner | 1] = right - weights[corner | 3];
    weights[corner] = part_of(left, fraction - y);
    weights[corner | 2] = left - weights[corner];
  }
  return weights;
}

// A texel's elements as what is filtered: of integers that stay integers, their values.
Floats weighed_at(const Sampler& sampler, const Level& level, const std::array<int, 3>& at, Reading reading) {
  const auto [x, y, z] = at;
  if (sampler.reads_floats) return floats_at(sampler, level, x, y, z, reading);
  const std::array<std::uint32_t, 4> bits = bits_at(sampler, level, at, reading);
  Floats found{};
  for (std::size_t each = 0; each < found.size(); ++each)
    found[each] = static_cast<float>(static_cast<std::int32_t>(bits[each]));
  return found;
}

// What is filtered of integers has 16 bits, and a half goes up; so did it on an H100. (What is sRGB was not measured.)
float rounded(const Sampler& sampler, float value) {
  if (!sampler.reads_floats) return std::floor(value + 0.5F);
  if (sampler.format.is_float() || sampler.is_srgb) return value;
  const double steps = sampler.format.is_signed() ? 32767 : 65535;
  return static_cast<float>(std::floor(value * steps + 0.5) / steps);
}

Floats filtered(const Sampler& sampler, const Level& level, const TexturePlace& place, Reading reading) {
  const std::array<int, 3> extents{level.width, level.height, level.depth};
  std::array<Neighbours, 3> along{};
  for (int each = 0; each < place.dimensions; ++each) {
    const auto at = static_cast<std::size_t>(each);
    along[at] = neighbours(sampler, each, place.coordinates[at], extents[at], For::filter);
  }
  if (place.dimensions < 3) along[2] = {place.slice, place.slice, 0};
  const std::array<int, 8> weights = corner_weights(along);
  Floats sum{};
  for (unsigned corner = 0; corner < weights.size(); ++corner) {
    if (weights[corner] == 0) continue;  // a neighbour that does not count is not read, so it may be no number
    std::array<int, 3> texel{};
    for (unsigned each = 0; each < 3; ++each)
      texel[each] = (corner >> each & 1) != 0 ? along[each].second : along[each].first;
    const Floats found = weighed_at(sampler, level, texel, reading);
    const float weight = static_cast<float>(weights[corner]) / fraction;
    for (std::size_t each = 0; each < sum.size(); ++each) sum[each] += weight * found[each];
  }
  for (float& each : sum) each = rounded(sampler, each);
  return sum;
}

std::array<int, 3> nearest(const Sampler& sampler, const Level& level, const TexturePlace& place) {
  const std::array<int, 3> extents{level.width, level.height, level.depth};
  std::array<int, 3> texel{0, 0, place.slice};
  for (int each = 0; each < place.dimensions; ++each) {
    const auto at = static_cast<std::size_t>(each);
    texel[at] = neighbours(sampler, each, place.coordinates[at], extents[at], For::nearest).first;
  }
  return texel;
}

Floats sample_floats(const Sampler& sampler, const Level& level, const TexturePlace& place, Reading reading) {
  if (sampler.filters_linearly) return filtered(sampler, level, place, reading);
  const auto [x, y, z] = nearest(sampler, level, place);
  return floats_at(sampler, level, x, y, z, reading);
}

std::array<std::uint32_t, 4> integers(const Sampler& sampler, const Level& level, const TexturePlace& place,
                                      Reading reading) {
  if (!sampler.filters_linearly) return bits_at(sampler, level, nearest(sampler, level, place), reading);
  std::array<std::uint32_t, 4> found{};
  std::ranges::transform(filtered(sampler, level, place, reading), found.begin(),
                         [](float each) { return static_cast<std::uint32_t>(static_cast<std::int32_t>(each)); });
  return found;
}

// The face of a cube that a direction meets, and where: the table of the guide.
TexturePlace on_cube(const float (&direction)[3]) {
  const float x = direction[0], y = direction[1], z = direction[2];
  const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
  float s = 0, t = 0, m = 1;
  int face = 0;
  if (ax >= ay && ax >= az) {
    face = x >= 0 ? 0 : 1;
    m = ax;
    s = x >= 0 ? -z : z;
    t = -y;
  } else if (ay >= az) {
    face = y >= 0 ? 2 : 3;
    m = ay;
    s = x;
    t = y >= 0 ? z : -z;
  } else {
    face = z >= 0 ? 4 : 5;
    m = az;
    s = z >= 0 ? x : -x;
    t = -y;
  }
  TexturePlace place;
  place.dimensions = 2;
  place.coordinates = {(s / m + 1) / 2, (t / m + 1) / 2, 0};
  place.slice = face;
  return place;
}

// One that there is: a negative number is a large one, as on an H100.
int layer_of(const abi::TextureFetch& fetch, int layers) {
  return static_cast<int>(std::min(static_cast<std::uint32_t>(fetch.layer), static_cast<std::uint32_t>(layers - 1)));
}

TexturePlace place_of(const abi::TextureFetch& fetch, const Level& level) {
  TexturePlace place;
  if (fetch.shape == abi::shape_cube) {
    place = on_cube(fetch.coordinates);
    if (fetch.is_layered != 0) place.slice += 6 * layer_of(fetch, std::max(level.depth / 6, 1));
    return place;
  }
  place.coordinates = {fetch.coordinates[0], fetch.coordinates[1], fetch.coordinates[2]};
  // One dimension is two with a height of 1: the border below is half of what a filter takes, on an H100, too.
  place.dimensions = fetch.shape == abi::shape_3d ? 3 : 2;
  if (fetch.is_layered != 0) place.slice = layer_of(fetch, level.depth);
  return place;
}

float level_of(const Sampler& sampler, const abi::TextureFetch& fetch) {
  float level = 0;
  if (fetch.level == abi::level_given) level = fetch.lod;
  if (fetch.level == abi::level_of_gradients) {
    const Level& base = sampler.levels.front();
    const std::array<int, 3> extents{base.width, base.height, base.depth};
    double x = 0, y = 0;
    for (std::size_t each = 0; each < 3; ++each) {
      const double scale = sampler.is_normalised ? extents[each] : 1;
      x += tamed(fetch.dx[each]) * scale * tamed(fetch.dx[each]) * scale;
      y += tamed(fetch.dy[each]) * scale * tamed(fetch.dy[each]) * scale;
    }
    const double longest = std::sqrt(std::max(x, y));
    level = longest > 0 ? static_cast<float>(std::log2(longest)) : 0;
  }
  if (std::isnan(level)) level = 0;
  if (fetch.level != abi::level_none) level += sampler.level_bias;  // as on an H100
  const float greatest = std::min(sampler.greatest_level, static_cast<float>(sampler.levels.size() - 1));
  return std::clamp(level, std::min(std::max(sampler.least_level, 0.0F), greatest), greatest);
}

void answer(abi::TextureFetch& fetch, const Floats& floats) {
  for (std::size_t each = 0; each < floats.size(); ++each)
    fetch.texel[each] = std::bit_cast<std::uint32_t>(floats[each]);
}

void answer(abi::TextureFetch& fetch, const std::array<std::uint32_t, 4>& bits) {
  std::ranges::copy(bits, std::begin(fetch.texel));
}

// One component of the four texels that a filter would use, from the lower left one around, as tex2Dgather orders them.
void gather(const Sampler& sampler, const Level& level, const TexturePlace& place, abi::TextureFetch& fetch,
            Reading reading) {
  const Neighbours x = neighbours(sampler, 0, place.coordinates[0], level.width, For::gather);
  const Neighbours y = neighbours(sampler, 1, place.coordinates[1], level.height, For::gather);
  const std::array<std::array<int, 2>, 4> corners{
      {{x.first, y.second}, {x.second, y.second}, {x.second, y.first}, {x.first, y.first}}};
  const auto component = static_cast<std::size_t>(std::clamp(fetch.gathered, 0, 3));
  for (std::size_t each = 0; each < corners.size(); ++each) {
    const std::array<int, 3> texel{corners[each][0], corners[each][1], place.slice};
    if (sampler.reads_floats) {
      const Floats found = floats_at(sampler, level, texel[0], texel[1], texel[2], reading);
      fetch.texel[each] = std::bit_cast<std::uint32_t>(found[component]);
    } else {
      fetch.texel[each] = bits_at(sampler, level, texel, reading)[component];
    }
  }
}

// A buffer's texel by its index; zeros outside.
void fetch_linear(const Sampler& sampler, abi::TextureFetch& fetch, Reading reading) {
  const Level& level = sampler.levels.front();
  const bool is_inside = fetch.index >= 0 && fetch.index < level.width;
  if (!is_inside) {
    std::fill(std::begin(fetch.texel), std::end(fetch.texel), 0U);
  } else if (sampler.reads_floats) {
    answer(fetch, floats_at(sampler, level, fetch.index, 0, 0, reading));
  } else {
    answer(fetch, bits_at(sampler, level, {fetch.index, 0, 0}, reading));
  }
}

}  // namespace

void sample(const Sampler& sampler, abi::TextureFetch& fetch, Reading reading) {
  if (fetch.shape == abi::shape_linear) return fetch_linear(sampler, fetch, reading);
  const float wanted = level_of(sampler, fetch);
  const bool is_between_levels = sampler.filters_levels_linearly && sampler.reads_floats;
  const auto first = static_cast<std::size_t>(is_between_levels ? std::floor(wanted) : std::floor(wanted + 0.5F));
  const Level& level = sampler.levels[first];
  const TexturePlace place = place_of(fetch, level);
  if (fetch.gathered >= 0) return gather(sampler, level, place, fetch, reading);
  if (!sampler.reads_floats) return answer(fetch, integers(sampler, level, place, reading));
  Floats found = sample_floats(sampler, level, place, reading);
  const auto weight = std::floor((wanted - static_cast<float>(first)) * fraction) / fraction;
  if (is_between_levels && weight > 0) {
    const Level& next = sampler.levels[first + 1];
    const Floats other = sample_floats(sampler, next, place_of(fetch, next), reading);
    for (std::size_t each = 0; each < found.size(); ++each)
      found[each] = (1 - weight) * found[each] + weight * other[each];
  }
  answer(fetch, found);
}

}  // namespace aiocuda::emulator::texture
