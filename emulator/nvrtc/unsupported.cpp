// See unsupported.hpp.
#include "unsupported.hpp"

#include <unordered_map>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view textures = "textures and surfaces are not supported on the emulated driver";
constexpr std::string_view clusters = "thread block clusters are not supported on the emulated driver";
constexpr std::string_view tensor_memory =
    "the tensor memory accelerator (TMA) is not supported on the emulated driver";
constexpr std::string_view dynamic_parallelism =
    "launching a kernel from a kernel (dynamic parallelism) is not supported on the emulated driver";

}  // namespace

std::string_view why_unsupported(std::string_view word) {
  static const std::unordered_map<std::string_view, std::string_view> exact = {
      {"__cluster_dims__", clusters},
      {"cluster_group", clusters},
      {"this_cluster", clusters},
      {"__clusterDim", clusters},
      {"__clusterIdx", clusters},
      {"__cluster_barrier_arrive", clusters},
      {"__cluster_barrier_wait", clusters},
      {"__cluster_map_shared_rank", clusters},
      {"__isConstant",
       "__isConstant is not supported on the emulated driver, whose constant memory is ordinary memory"},
      {"cp_async_bulk_tensor", tensor_memory},
      {"cudaTextureObject_t", textures},
      {"cudaSurfaceObject_t", textures},
      {"tex1D", textures},
      {"tex1Dfetch", textures},
      {"tex1DLayered", textures},
      {"tex2D", textures},
      {"tex2DLod", textures},
      {"tex2DGrad", textures},
      {"tex2Dgather", textures},
      {"tex2DLayered", textures},
      {"tex3D", textures},
      {"texCubemap", textures},
      {"surf1Dread", textures},
      {"surf1Dwrite", textures},
      {"surf2Dread", textures},
      {"surf2Dwrite", textures},
      {"surf3Dread", textures},
      {"surf3Dwrite", textures},
      {"CUtensorMap", tensor_memory},
      {"<<<", dynamic_parallelism},
      {"cudaLaunchDevice", dynamic_parallelism},
      {"cudaStreamFireAndForget", dynamic_parallelism},
      {"cudaStreamTailLaunch", dynamic_parallelism},
  };
  const auto found = exact.find(word);
  return found == exact.end() ? std::string_view{} : found->second;
}

}  // namespace aiocuda::emulator::nvrtc
