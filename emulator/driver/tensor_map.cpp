// Tensor maps: descriptions of tensors that the tensor memory accelerator would read. They are checked and packed here,
// as the driver of a GPU does on the host; what an H100 accepts against its documentation is accepted. No kernel can
// use one: the compiler refuses to.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "api.hpp"
#include "device.hpp"
#include "newer_api.hpp"

using namespace aiocuda::emulator;

namespace {

constexpr std::uint32_t most_dimensions = 5;

// What the 128 bytes mean here.
struct Packed {
  std::uint64_t address;
  std::array<std::uint64_t, most_dimensions - 1> strides;  // in bytes
  std::array<std::uint32_t, most_dimensions> last;         // index along each dimension: a size can be 2^32
  std::array<std::uint16_t, most_dimensions> box;          // of a tile; of columns: channels and pixels, then nothing
  std::array<std::uint8_t, most_dimensions> steps;
  std::uint8_t rank;
  std::array<std::int16_t, 6> corners;  // lower, then upper, of columns
  std::uint8_t type, interleave, swizzle, promotion, fill;
  std::uint8_t is_packed;  // 1, so that a map is never all zeros
};
static_assert(sizeof(Packed) <= sizeof(CUtensorMap));

// 0 for types that devices of this compute capability do not have.
std::size_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ:
      return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

bool is_float(CUtensorMapDataType type) {
  return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

// The most bytes of a box's inner dimension; 0: any.
std::size_t swizzle_bytes(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    default:
      return 128;
  }
}

struct Tensor {
  CUtensorMapDataType type;
  std::uint32_t rank;
  const void* address;
  const cuuint64_t* sizes;
  const cuuint64_t* strides;
  const cuuint32_t* steps;
  CUtensorMapInterleave interleave;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;

  std::uint64_t alignment() const { return interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16; }
};

template <typename Value>
bool is_within(Value value, Value least, Value most) {
  return value >= least && value <= most;
}

bool are_options_valid(const Tensor& tensor) {
  return element_bytes(tensor.type) != 0 &&
         is_within<int>(tensor.interleave, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_32B) &&
         // The swizzles after this one are of later devices.
         is_within<int>(tensor.swizzle, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B) &&
         is_within<int>(tensor.promotion, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B) &&
         (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
          (tensor.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA && is_float(tensor.type)));
}

// What holds for tiles and for columns alike; packs it.
CUresult pack(const Tensor& tensor, Packed& packed) {
  if (const CUresult error = check_initialised()) return error;
  if (tensor.sizes == nullptr || tensor.steps == nullptr || !are_options_valid(tensor)) return CUDA_ERROR_INVALID_VALUE;
  const std::uint32_t least_rank = tensor.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE ? 1 : 3;
  if (!is_within(tensor.rank, least_rank, most_dimensions)) return CUDA_ERROR_INVALID_VALUE;
  if (tensor.rank > 1 && tensor.strides == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.address);
  if (address % tensor.alignment() != 0) return CUDA_ERROR_INVALID_VALUE;
  packed = {};
  packed.address = address;
  for (std::uint32_t each = 0; each < tensor.rank; ++each) {
    constexpr std::uint64_t most = std::uint64_t{1} << 32;
    if (!is_within<std::uint64_t>(tensor.sizes[each], 1, most)) return CUDA_ERROR_INVALID_VALUE;
    packed.last[each] = static_cast<std::uint32_t>(tensor.sizes[each] - 1);
    const bool counts = each != 0 || tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    if (counts && !is_within(tensor.steps[each], 1U, 8U)) return CUDA_ERROR_INVALID_VALUE;
    packed.steps[each] = counts ? static_cast<std::uint8_t>(tensor.steps[each]) : 1;
  }
  for (std::uint32_t each = 0; each + 1 < tensor.rank; ++each) {
    const std::uint64_t stride = tensor.strides[each];
    if (stride % tensor.alignment() != 0 || stride >= std::uint64_t{1} << 40) return CUDA_ERROR_INVALID_VALUE;
    packed.strides[each] = stride;
  }
  packed.rank = static_cast<std::uint8_t>(tensor.rank);
  packed.type = static_cast<std::uint8_t>(tensor.type);
  packed.interleave = static_cast<std::uint8_t>(tensor.interleave);
  packed.swizzle = static_cast<std::uint8_t>(tensor.swizzle);
  packed.promotion = static_cast<std::uint8_t>(tensor.promotion);
  packed.fill = static_cast<std::uint8_t>(tensor.fill);
  packed.is_packed = 1;
  return CUDA_SUCCESS;
}

// The inner dimension of what is copied at once.
bool is_inner_valid(const Tensor& tensor, std::uint32_t elements) {
  if (tensor.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return true;
  const std::size_t bytes = elements * element_bytes(tensor.type);
  const std::size_t most = swizzle_bytes(tensor.swizzle);
  return bytes % 16 == 0 && (most == 0 || bytes <= most);
}

void write(const Packed& packed, CUtensorMap& map) {
  std::memset(static_cast<void*>(&map), 0, sizeof map);
  std::memcpy(static_cast<void*>(&map), &packed, sizeof packed);
}

// Of columns: the pixels' box has a side for each dimension but the channels and the batch.
CUresult pack_columns(const Tensor& tensor, std::uint32_t channels, std::uint32_t pixels, Packed& packed) {
  if (!is_within(tensor.rank, 3U, most_dimensions)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = pack(tensor, packed)) return error;
  if (!is_within(channels, 1U, 256U) || !is_within(pixels, 1U, 1024U) || !is_inner_valid(tensor, channels))
    return CUDA_ERROR_INVALID_VALUE;
  packed.box = {static_cast<std::uint16_t>(channels), static_cast<std::uint16_t>(pixels)};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  const Tensor tensor{type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill};
  Packed packed;
  if (const CUresult error = pack(tensor, packed)) return error;
  if (map == nullptr || box == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t bytes = element_bytes(type);
  for (std::uint32_t each = 0; each < rank; ++each) {
    if (!is_within(box[each], 1U, 256U)) return CUDA_ERROR_INVALID_VALUE;
    packed.box[each] = static_cast<std::uint16_t>(box[each]);
    bytes *= box[each];
  }
  if (!is_inner_valid(tensor, box[0])) return CUDA_ERROR_INVALID_VALUE;
  // No block has room for more.
  if (bytes > limits::shared_per_block_optin) return CUDA_ERROR_INVALID_VALUE;
  write(packed, *map);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  const Tensor tensor{type, rank, address, sizes, strides, steps, interleave, swizzle, promotion, fill};
  Packed packed;
  if (const CUresult error = pack_columns(tensor, channels, pixels, packed)) return error;
  if (map == nullptr || lower == nullptr || upper == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr std::array<int, 3> reaches{32768, 128, 16};  // of a corner, with one side, two and three
  const int reach = reaches[rank - 3];
  for (std::uint32_t each = 0; each + 2 < rank; ++each) {
    if (!is_within(lower[each], -reach, reach - 1) || !is_within(upper[each], -reach, reach - 1))
      return CUDA_ERROR_INVALID_VALUE;
    packed.corners[each] = static_cast<std::int16_t>(lower[each]);
    packed.corners[3 + each] = static_cast<std::int16_t>(upper[each]);
  }
  write(packed, *map);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  if (const CUresult error = check_initialised()) return error;
  if (map == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Packed packed;
  std::memcpy(&packed, map, sizeof packed);
  const auto given = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t alignment = packed.interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;
  if (given % alignment != 0) return CUDA_ERROR_INVALID_VALUE;
  packed.address = given;
  write(packed, *map);
  return CUDA_SUCCESS;
}

// Classes choose how addresses out of bounds are made on newer devices than these. Here all are the small one.
CUresult cuTensorMapSetAllocationClass(CUtensorMap* map, CUtensorMapAllocClass asked,
                                       CUtensorMapAllocClass* effective) {
  if (effective != nullptr) *effective = CU_TENSOR_MAP_ALLOC_CLASS_SMALL;
  if (const CUresult error = check_initialised()) return error;
  const int number = asked;
  if (map == nullptr || number < CU_TENSOR_MAP_ALLOC_CLASS_AUTO || number > CU_TENSOR_MAP_ALLOC_CLASS_LARGE)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}
