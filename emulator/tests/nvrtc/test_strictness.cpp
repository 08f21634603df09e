// What NVRTC refuses is refused, in its words: what is green here compiles for a GPU.
#include <doctest/doctest.h>

#include "support.hpp"

using namespace nvrtc_tests;

namespace {

std::string log_of(const std::string& source, std::vector<std::string> options = {}) {
  const Compiled compiled = compile({.source = source, .options = std::move(options)});
  return compiled.succeeded() ? "it compiles" : compiled.log;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr const char* host_function = "A function without execution space annotations";
constexpr const char* host_variable = "A namespace scope variable without memory space annotations";

}  // namespace

TEST_CASE("a refusal has NVRTC's form: file, line, source line and caret") {
  const std::string log = log_of("\nint helper(int a) { return a + 1; }\n__global__ void k(int* x) {}\n");
  CHECK(contains(log, "kernels.cu(2): error: A function without execution space annotations"));
  CHECK(contains(log, "\n  int helper(int a) { return a + 1; }\n      ^\n"));
  CHECK(contains(log, "1 error detected in the compilation of \"kernels.cu\"."));
  const std::string undefined = log_of("__global__ void k(int* x) {\n  x[0] = nowhere(1);\n}\n");
  CHECK(contains(undefined, "kernels.cu(2): error: identifier \"nowhere\" is undefined\n    x[0] = nowhere(1);\n"));
  CHECK(contains(undefined, "\n           ^"));
}

TEST_CASE("functions and variables of the host are refused, whoever uses them") {
  const std::vector<std::pair<const char*, const char*>> refused = {
      {"template <class T> T f(T a) { return a; }", host_function},
      {"constexpr int f(int a) { return a; }", host_function},
      {"static inline int f(int a) { return a; }", host_function},
      {"int f(int);", host_function},
      {"int main() { return 0; }", host_function},
      {"namespace n { int f(int a) { return a; } }", host_function},
      {"struct S { int a; int get() const { return a; } };", host_function},
      {"struct S { int a; S(int b) : a(b) {} };", host_function},
      {"struct S { struct T { void f() {} }; };", host_function},
      {"struct V { int a; }; V operator+(V a, V b) { return V{a.a + b.a}; }", host_function},
      {"struct V { int a; friend V operator+(V a, V b) { return V{a.a + b.a}; } };", host_function},
      {"__host__ int f(int a) { return a; }", "explicitly marked as a __host__ function"},
      {"int n = 3;", host_variable},
      {"static int n;", host_variable},
      {"extern int n;", host_variable},
      {"const char* text = \"a\";", host_variable},
      {"auto f = [](int a) { return a; };", host_variable},
      {"struct S { static int a; };", "A class static data member with non-const type"},
      {"__global__ void f(int* x) { uint8_t y = 1; }", "identifier \"uint8_t\" is undefined"},
      {"__global__ void f(int* x) { x[0] = INT_MAX; }", "identifier \"INT_MAX\" is undefined"},
      {"__global__ void f(float* x) { x[0] = M_PI; }", "identifier \"M_PI\" is undefined"},
      {"__global__ void f(float* x) { x[0] = CUDART_PI_F; }", "identifier \"CUDART_PI_F\" is undefined"},
      {"__global__ void f(float* x) { std::size_t y = 1; }", "namespace \"std\" has no member \"size_t\""},
      {"__global__ void f(int* x) { x[0] = __builtin_popcount(3); }", "identifier \"__builtin_popcount\" is undefined"},
      {"__global__ void f(int* x) { try { x[0] = 1; } catch (...) {} }", "does not support exception handling"},
      {"__global__ void f(int* x) { __shared__ int a = 3; x[0] = a; }", "initializer not allowed for __shared__"},
      {"__global__ void f(int* x, int n) { int a[n]; x[0] = a[0]; }", "expression must have a constant value"},
      {"__global__ void f(int* x) { x[0] = x[0] ?: 3; }", "expected an expression"},
      {"__global__ int f(int* x) { return 1; }", "a __global__ function must have a void return type"},
      {"__global__ void f(int n, ...) {}", "a __global__ function cannot have ellipsis"},
      {"__global__ void f(int* x) { extern int kept[]; x[0] = kept[0]; }", host_variable},
      {"__global__ void f(int* x) { __int128 a = 1; }", "128-bit integer type is only supported"},
      {"#include <cstdint>\n", "could not open source file \"cstdint\""},
      {"#include <cmath>\n", "could not open source file \"cmath\""},
      {"#include <assert.h>\n", "could not open source file \"assert.h\""},
  };
  for (const auto& [source, why] : refused) {
    const std::string log = log_of(std::string(source) + "\n__global__ void k(int* x) { x[0] = 1; }\n");
    CAPTURE(source);
    CAPTURE(log);
    CHECK(contains(log, why));
  }
}

TEST_CASE("what NVRTC accepts without qualifiers is accepted") {
  CHECK(log_of(R"(
    const int n = 3;
    const float table[] = {1, 2};
    constexpr double pi = 3;
    inline constexpr int m = 4;
    template <class T> constexpr T two = T(2);
    struct Plain { int a; Plain() = default; static const int b = 4; int c[2] = {1, 2}; int (*function)(int); };
    struct Later;
    template <class T> struct Pair { T a, b; __device__ Pair(T x) : a(x), b(x) {} __device__ T sum() const; };
    template <class T> __device__ T Pair<T>::sum() const { return a + b; }
    __device__ int known(int a);
    int known(int a) { return a + 1; }
    typedef int (*callback)(int);
    using other = float (*)(float);
    typedef unsigned char uint8_t;
    enum Limits { INT_MAX = 7 };
    static_assert(sizeof(int) == 4, "");
    namespace a { namespace b { __host__ __device__ int both(int x) { return x; } } }
    __global__ void k(int* x) {
      auto f = [](int a) { return a + 1; };
      uint8_t small = 300;
      assert(x != NULL);
      x[0] = known(f(n)) + a::b::both(INT_MAX) + two<int> + Pair<int>(2).sum() + small;
    })") == "it compiles");
  CHECK(log_of("int f(int a) { return a; }\nint n = 3;\n__global__ void k(int* x) { x[0] = f(n); }",
               {"-default-device"}) == "it compiles");
  CHECK(log_of("#include <cuda/std/cstdint>\n__global__ void k(uint8_t* x) { x[0] = 1; }") == "it compiles");
}
