// See unsupported.hpp.
#include "unsupported.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view tensor_memory =
    "the tensor memory accelerator (TMA) is not supported on the emulated driver";
constexpr std::string_view dynamic_parallelism =
    "launching a kernel from a kernel (dynamic parallelism) is not supported on the emulated driver";

}  // namespace

std::string_view why_unsupported(std::string_view word) {
  static const std::unordered_map<std::string_view, std::string_view> exact = {
      {"__cluster_map_shared_multicast",
       "the shared memory of several blocks at once (multicast) is not supported on the emulated driver"},
      {"cp_async_bulk_tensor", tensor_memory},
      {"CUtensorMap", tensor_memory},
      {"<<<", dynamic_parallelism},
      {"cudaLaunchDevice", dynamic_parallelism},
      {"cudaStreamFireAndForget", dynamic_parallelism},
      {"cudaStreamTailLaunch", dynamic_parallelism},
  };
  const auto found = exact.find(word);
  return found == exact.end() ? std::string_view{} : found->second;
}

bool is_of_textures(std::string_view word) {
  constexpr std::string_view beginnings[] = {"cudaTextureObject_t",
                                             "cudaSurfaceObject_t",
                                             "cudaSurfaceBoundaryMode",
                                             "cudaBoundaryMode",
                                             "tex1D",
                                             "tex2D",
                                             "tex3D",
                                             "texCubemap",
                                             "surf1D",
                                             "surf2D",
                                             "surf3D",
                                             "surfCubemap"};
  return std::any_of(std::begin(beginnings), std::end(beginnings),
                     [&](std::string_view beginning) { return word.starts_with(beginning); });
}

}  // namespace aiocuda::emulator::nvrtc
