// Tensor maps: what is accepted and what is refused, as an H100 does it.
#include <cstring>

#include "support.hpp"

using namespace driver_test;

namespace {

// What a map is made of; the defaults are valid.
struct Tile {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  cuuint32_t rank = 2;
  std::uintptr_t address = 4096;
  cuuint64_t sizes[5] = {64, 64, 4, 4, 4};
  cuuint64_t strides[4] = {256, 256 * 64, 256 * 64 * 4, 256 * 64 * 16};
  cuuint32_t box[5] = {32, 32, 1, 1, 1};
  cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  int interleave = 0, swizzle = 0, promotion = 0, fill = 0;

  CUresult encode(CUtensorMap& map) const {
    return cuTensorMapEncodeTiled(
        &map, type, rank, reinterpret_cast<void*>(address), sizes, strides, box, steps,
        static_cast<CUtensorMapInterleave>(interleave), static_cast<CUtensorMapSwizzle>(swizzle),
        static_cast<CUtensorMapL2promotion>(promotion), static_cast<CUtensorMapFloatOOBfill>(fill));
  }
};

template <typename Change>
CUresult with(Change&& change) {
  Tile tile;
  change(tile);
  CUtensorMap map;
  return tile.encode(map);
}

bool are_same(const CUtensorMap& one, const CUtensorMap& other) { return std::memcmp(&one, &other, sizeof one) == 0; }

struct Columns {
  cuuint32_t rank = 3, channels = 64, pixels = 4;
  int lower[3] = {0, 0, 0}, upper[3] = {4, 4, 4};
  CUresult encode() const {
    const Tile tile;
    CUtensorMap map;
    return cuTensorMapEncodeIm2col(&map, tile.type, rank, reinterpret_cast<void*>(tile.address), tile.sizes,
                                   tile.strides, lower, upper, channels, pixels, tile.steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
};

template <typename Change>
CUresult columns_with(Change&& change) {
  Columns columns;
  change(columns);
  return columns.encode();
}

}  // namespace

TEST_CASE("a map says all that it is made of") {
  REQUIRE_OK(cuInit(0));
  CUtensorMap map, other;
  Tile tile;
  REQUIRE_OK(tile.encode(map));
  REQUIRE_OK(tile.encode(other));
  CHECK(are_same(map, other));
  const auto differs = [&](auto change) {
    Tile changed;
    change(changed);
    REQUIRE_OK(changed.encode(other));
    return !are_same(map, other);
  };
  CHECK(differs([](Tile& t) { t.address = 8192; }));
  CHECK(differs([](Tile& t) { t.sizes[1] = 65; }));
  CHECK(differs([](Tile& t) { t.strides[0] = 512; }));
  CHECK(differs([](Tile& t) { t.box[1] = 16; }));
  CHECK(differs([](Tile& t) { t.steps[1] = 2; }));
  CHECK(differs([](Tile& t) { t.swizzle = 3; }));
  CHECK(differs([](Tile& t) { t.promotion = 2; }));
  CHECK(differs([](Tile& t) { t.fill = 1; }));
  CHECK(differs([](Tile& t) { t.type = CU_TENSOR_MAP_DATA_TYPE_INT32; }));
}

TEST_CASE("the address of a map is replaced") {
  REQUIRE_OK(cuInit(0));
  CUtensorMap map, expected;
  Tile tile;
  REQUIRE_OK(tile.encode(map));
  CHECK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(8200)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuTensorMapReplaceAddress(&map, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK_OK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(8192)));
  tile.address = 8192;
  REQUIRE_OK(tile.encode(expected));
  CHECK(are_same(map, expected));
}

TEST_CASE("tiles are accepted and refused as on an H100") {
  REQUIRE_OK(cuInit(0));
  CHECK_OK(with([](Tile& t) { t.swizzle = 3; }));
  CHECK_OK(with([](Tile& t) { t.strides[0] = 128; }));
  CHECK_OK(with([](Tile& t) { t.sizes[0] = std::uint64_t{1} << 32; }));
  CHECK_OK(with([](Tile& t) { t.steps[1] = 8; }));
  CHECK_OK(with([](Tile& t) { t.steps[0] = 99; }));
  for (const int interleave : {1, 2}) CHECK_OK(with([=](Tile& t) { t.rank = 3, t.interleave = interleave; }));
  const auto refused = [](auto change) { return with(change) == CUDA_ERROR_INVALID_VALUE; };
  CHECK(refused([](Tile& t) { t.rank = 0; }));
  CHECK(refused([](Tile& t) { t.rank = 6; }));
  CHECK(refused([](Tile& t) { t.address += 8; }));
  CHECK(refused([](Tile& t) { t.rank = 3, t.interleave = 2, t.address += 16; }));
  CHECK(refused([](Tile& t) { t.swizzle = 1; }));
  CHECK(refused([](Tile& t) { t.swizzle = 2; }));
  CHECK(refused([](Tile& t) { t.swizzle = 7; }));
  CHECK(refused([](Tile& t) { t.interleave = 1; }));
  CHECK(refused([](Tile& t) { t.promotion = 4; }));
  CHECK(refused([](Tile& t) { t.fill = 2; }));
  CHECK(refused([](Tile& t) { t.fill = 1, t.type = CU_TENSOR_MAP_DATA_TYPE_INT32; }));
  CHECK(refused([](Tile& t) { t.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B; }));
  CHECK(refused([](Tile& t) { t.strides[0] = 8; }));
  CHECK(refused([](Tile& t) { t.strides[0] = std::uint64_t{1} << 40; }));
  CHECK(refused([](Tile& t) { t.sizes[0] = 0; }));
  CHECK(refused([](Tile& t) { t.sizes[0] = (std::uint64_t{1} << 32) + 1; }));
  CHECK(refused([](Tile& t) { t.box[0] = 0; }));
  CHECK(refused([](Tile& t) { t.box[0] = 257; }));
  CHECK(refused([](Tile& t) { t.box[0] = 3; }));
  CHECK(refused([](Tile& t) { t.box[0] = t.box[1] = 256; }));
  CHECK(refused([](Tile& t) { t.steps[1] = 0; }));
  CHECK(refused([](Tile& t) { t.steps[1] = 9; }));
}

TEST_CASE("columns are accepted and refused as on an H100") {
  REQUIRE_OK(cuInit(0));
  for (const cuuint32_t rank : {3U, 4U, 5U}) CHECK_OK(columns_with([=](Columns& c) { c.rank = rank; }));
  CHECK_OK(columns_with([](Columns& c) { c.lower[0] = -32768; }));
  CHECK_OK(columns_with([](Columns& c) { c.rank = 4, c.lower[0] = -128; }));
  CHECK_OK(columns_with([](Columns& c) { c.rank = 5, c.lower[0] = -16; }));
  const auto refused = [](auto change) { return columns_with(change) == CUDA_ERROR_INVALID_VALUE; };
  CHECK(refused([](Columns& c) { c.rank = 2; }));
  CHECK(refused([](Columns& c) { c.channels = 257; }));
  CHECK(refused([](Columns& c) { c.channels = 0; }));
  CHECK(refused([](Columns& c) { c.channels = 3; }));
  CHECK(refused([](Columns& c) { c.pixels = 1025; }));
  CHECK(refused([](Columns& c) { c.pixels = 0; }));
  CHECK(refused([](Columns& c) { c.lower[0] = -32769; }));
  CHECK(refused([](Columns& c) { c.upper[0] = 32768; }));
  CHECK(refused([](Columns& c) { c.rank = 4, c.lower[0] = -129; }));
  CHECK(refused([](Columns& c) { c.rank = 5, c.upper[0] = 16; }));
}
