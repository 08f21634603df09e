// wmma: products of fragments of every format, against plain loops.
#include <doctest/doctest.h>

#include "support.hpp"

using namespace nvrtc_tests;

TEST_CASE("wmma: a tile of A times a tile of B, loaded, scaled and stored") {
  struct Shape {
    const char* type;
    const char* stored;  // the type in memory
    const char* sum;
    int m, n, k;
  };
  const Shape shapes[] = {{"__half", "__half", "float", 16, 16, 16},
                          {"__half", "__half", "__half", 32, 8, 16},
                          {"__nv_bfloat16", "__nv_bfloat16", "float", 8, 32, 16},
                          {"wmma::precision::tf32", "float", "float", 16, 16, 8},
                          {"signed char", "signed char", "int", 16, 16, 16},
                          {"double", "double", "double", 8, 8, 4}};
  for (const Shape& shape : shapes) {
    CAPTURE(shape.type);
    const std::string extents =
        std::to_string(shape.m) + ", " + std::to_string(shape.n) + ", " + std::to_string(shape.k);
    const std::string stored = shape.stored;
    const std::string sum = shape.sum;
    const std::string fragment = "wmma::fragment<wmma::";
    const std::string source = R"(
      #include <mma.h>
      using namespace nvcuda;
      extern "C" __global__ void k(const float* a, const float* b, float* d) {
        __shared__ )" + stored +
                               " A[" + std::to_string(shape.m * shape.k) + "], B[" + std::to_string(shape.n * shape.k) +
                               "];\n__shared__ " + sum + " D[" + std::to_string(shape.m * shape.n) + R"(];
        for (int i = threadIdx.x; i < )" +
                               std::to_string(shape.m * shape.k) + "; i += 32) A[i] = (" + stored + R"()a[i];
        for (int i = threadIdx.x; i < )" +
                               std::to_string(shape.n * shape.k) + "; i += 32) B[i] = (" + stored + R"()b[i];
        __syncthreads();
        )" + fragment + "matrix_a, " +
                               extents + ", " + shape.type + ", wmma::row_major> x;\n" + fragment + "matrix_b, " +
                               extents + ", " + shape.type + ", wmma::col_major> y;\n" + fragment + "accumulator, " +
                               extents + ", " + sum + R"(> z;
        wmma::fill_fragment(z, 1.0f);
        wmma::load_matrix_sync(x, A, )" +
                               std::to_string(shape.k) + R"();
        wmma::load_matrix_sync(y, B, )" +
                               std::to_string(shape.k) + R"();
        wmma::mma_sync(z, x, y, z);
        for (int i = 0; i < z.num_elements; i++) z.x[i] = z.x[i] + z.x[i];
        wmma::store_matrix_sync(D, z, )" +
                               std::to_string(shape.n) + R"(, wmma::mem_row_major);
        __syncthreads();
        for (int i = threadIdx.x; i < )" +
                               std::to_string(shape.m * shape.n) + R"(; i += 32) d[i] = (float)D[i];
      })";
    const Module module(source.c_str());
    std::vector<float> a(static_cast<std::size_t>(shape.m * shape.k)), b(static_cast<std::size_t>(shape.n * shape.k)),
        d(static_cast<std::size_t>(shape.m * shape.n));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i * 5 % 7) - 3);
    module.launch("k", {.block = {32}}, a.data(), b.data(), d.data());
    bool is_right = true;
    for (int row = 0; row < shape.m; ++row) {
      for (int column = 0; column < shape.n; ++column) {
        float expected = 1;
        for (int depth = 0; depth < shape.k; ++depth)
          expected += a[static_cast<std::size_t>(row * shape.k + depth)] *
                      b[static_cast<std::size_t>(column * shape.k + depth)];
        is_right = is_right && d[static_cast<std::size_t>(row * shape.n + column)] == 2 * expected;
      }
    }
    CHECK(is_right);
  }
}
