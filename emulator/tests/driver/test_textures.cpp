// Arrays: what they hold, what is copied to and from them, and what a context leaves behind. What textures answer is
// tested against NumPy (tests/bindings).
#include <numeric>

#include "test_memory_support.hpp"

using namespace memory_test;

namespace {

CUDA_ARRAY3D_DESCRIPTOR described(std::size_t width, std::size_t height, std::size_t depth) {
  return {width, height, depth, CU_AD_FORMAT_SIGNED_INT32, 1, 0};
}

struct Array {
  explicit Array(const CUDA_ARRAY3D_DESCRIPTOR& description) { REQUIRE_OK(cuArray3DCreate(&handle, &description)); }
  ~Array() { cuArrayDestroy(handle); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  CUarray handle = nullptr;
};

// A box of the array, from and to host memory without gaps.
CUDA_MEMCPY3D copied(const Array& array, void* host, std::size_t width, std::size_t height, std::size_t depth) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array.handle;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = width * sizeof(int);
  copy.dstHeight = height;
  copy.WidthInBytes = width * sizeof(int);
  copy.Height = height;
  copy.Depth = depth;
  return copy;
}

CUDA_MEMCPY3D reversed(const CUDA_MEMCPY3D& copy) {
  CUDA_MEMCPY3D other = copy;
  other.srcMemoryType = CU_MEMORYTYPE_HOST;
  other.srcHost = copy.dstHost;
  other.srcArray = nullptr;
  other.srcPitch = copy.dstPitch;
  other.srcHeight = copy.dstHeight;
  other.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  other.dstArray = copy.srcArray;
  other.dstHost = nullptr;
  return other;
}

}  // namespace

TEST_CASE("an array keeps what is copied to it, box by box") {
  const Device device;
  const Array array(described(5, 4, 3));
  std::vector<int> all(60), found(60);
  std::iota(all.begin(), all.end(), 0);
  CUDA_MEMCPY3D copy = copied(array, all.data(), 5, 4, 3);
  const CUDA_MEMCPY3D fill = reversed(copy);
  REQUIRE_OK(cuMemcpy3D(&fill));
  copy = copied(array, found.data(), 2, 2, 2);
  copy.srcXInBytes = 3 * sizeof(int);
  copy.srcY = 2;
  copy.srcZ = 1;
  REQUIRE_OK(cuMemcpy3D(&copy));
  CHECK(std::vector<int>(found.begin(), found.begin() + 8) == std::vector<int>{33, 34, 38, 39, 53, 54, 58, 59});
  for (std::size_t CUDA_MEMCPY3D::* field : {&CUDA_MEMCPY3D::srcY, &CUDA_MEMCPY3D::srcZ}) {
    CUDA_MEMCPY3D outside = copy;
    outside.*field += 1;
    CHECK(cuMemcpy3D(&outside) == CUDA_ERROR_INVALID_VALUE);
  }
  CUDA_MEMCPY3D below = copy;  // its memory goes on, its rows do not
  below.srcZ = 0;
  below.srcY = 3;
  below.Depth = 1;
  CHECK(cuMemcpy3D(&below) == CUDA_ERROR_INVALID_VALUE);
  copy.srcXInBytes += 2;
  CHECK(cuMemcpy3D(&copy) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a captured copy of an array is a node that names the array") {
  const Device device;
  const Stream stream;
  const Array array(described(4, 0, 0));
  int* host = nullptr;
  REQUIRE_OK(cuMemAllocHost(reinterpret_cast<void**>(&host), 16));
  std::iota(host, host + 4, 5);
  REQUIRE_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  REQUIRE_OK(cuMemcpyHtoAAsync(array.handle, 4, host, 8, stream));
  CUgraph graph = nullptr;
  REQUIRE_OK(cuStreamEndCapture(stream, &graph));
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  REQUIRE_OK(cuGraphGetNodes(graph, &node, &count));
  CUDA_MEMCPY3D parameters{};
  REQUIRE_OK(cuGraphMemcpyNodeGetParams(node, &parameters));
  CHECK(parameters.dstMemoryType == CU_MEMORYTYPE_ARRAY);
  CHECK(parameters.dstArray == array.handle);
  CHECK(parameters.dstXInBytes == 4);
  CUgraphExec executable = nullptr;
  REQUIRE_OK(cuGraphInstantiate(&executable, graph, 0));
  REQUIRE_OK(cuGraphLaunch(executable, stream));
  stream.synchronise();
  int found[4] = {};
  REQUIRE_OK(cuMemcpyAtoH(found, array.handle, 0, 16));
  CHECK(found[1] == 5);
  CHECK(found[2] == 6);
  REQUIRE_OK(cuGraphExecDestroy(executable));
  REQUIRE_OK(cuGraphDestroy(graph));
  REQUIRE_OK(cuMemFreeHost(host));
}

TEST_CASE("arrays and what is of them give their memory back") {
  std::size_t before = 0;
  CUarray lost = nullptr;
  {
    const Device device;
    before = device.free_bytes();
    const CUDA_ARRAY3D_DESCRIPTOR description = described(256, 256, 0);
    REQUIRE_OK(cuArray3DCreate(&lost, &description));
    CUmipmappedArray mipmapped = nullptr;
    REQUIRE_OK(cuMipmappedArrayCreate(&mipmapped, &description, 20));
    CUarray level = nullptr;
    CHECK_OK(cuMipmappedArrayGetLevel(&level, mipmapped, 8));
    CHECK(cuMipmappedArrayGetLevel(&level, mipmapped, 9) == CUDA_ERROR_INVALID_VALUE);
    CHECK(cuArrayDestroy(level) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(device.free_bytes() < before);
    CHECK_OK(cuMipmappedArrayDestroy(mipmapped));
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = lost;
    CUDA_TEXTURE_DESC how{};
    CUtexObject texture = 0;
    CHECK_OK(cuTexObjectCreate(&texture, &resource, &how, nullptr));
    CUDA_RESOURCE_DESC told{};
    CHECK_OK(cuTexObjectGetResourceDesc(&told, texture));
    CHECK(told.res.array.hArray == lost);
    CHECK_OK(cuTexObjectDestroy(texture));
    CHECK(cuTexObjectDestroy(texture) == CUDA_ERROR_INVALID_VALUE);
  }
  const Device device;
  CHECK(device.free_bytes() == before);
  CHECK(cuArrayDestroy(lost) == CUDA_ERROR_INVALID_HANDLE);
}
