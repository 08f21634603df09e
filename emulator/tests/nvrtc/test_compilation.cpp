// The NVRTC functions: options, headers, logs, errors, what is refused and how.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "abi/text_image.hpp"
#include "nvrtc_functions.hpp"
#include "support.hpp"

using namespace nvrtc_tests;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The output of a kernel of one thread.
int answer(const Program& program) {
  const Module module(program);
  int out = -1;
  module.launch("k", {}, &out);
  return out;
}

}  // namespace

TEST_CASE("every result code has its name") {
  for (int code = 0; code <= 18; ++code) CHECK(contains(nvrtcGetErrorString(code), "NVRTC_"));
  CHECK(std::string(nvrtcGetErrorString(0)) == "NVRTC_SUCCESS");
  CHECK(std::string(nvrtcGetErrorString(6)) == "NVRTC_ERROR_COMPILATION");
  CHECK(std::string(nvrtcGetErrorString(1000)) == "NVRTC_ERROR unknown");
}

TEST_CASE("version and architectures") {
  int major = 0;
  int minor = -1;
  CHECK(nvrtcVersion(&major, &minor) == 0);
  CHECK(major == 13);
  CHECK(nvrtcVersion(nullptr, &minor) == 3);
  int count = 0;
  CHECK(nvrtcGetNumSupportedArchs(&count) == 0);
  std::vector<int> architectures(static_cast<std::size_t>(count));
  CHECK(nvrtcGetSupportedArchs(architectures.data()) == 0);
  CHECK(std::find(architectures.begin(), architectures.end(), 90) != architectures.end());
}

TEST_CASE("handles and arguments that are not valid are answered, not followed") {
  void* program = nullptr;
  CHECK(nvrtcCreateProgram(nullptr, "", nullptr, 0, nullptr, nullptr) == 3);
  CHECK(nvrtcCreateProgram(&program, nullptr, nullptr, 0, nullptr, nullptr) == 3);
  CHECK(nvrtcCreateProgram(&program, "", nullptr, 1, nullptr, nullptr) == 3);
  CHECK(nvrtcDestroyProgram(nullptr) == 4);
  int garbage = 0;
  void* handle = &garbage;
  CHECK(nvrtcDestroyProgram(&handle) == 4);
  CHECK(nvrtcCompileProgram(handle, 0, nullptr) == 4);
  REQUIRE(nvrtcCreateProgram(&program, "__global__ void k() {}", nullptr, 0, nullptr, nullptr) == 0);
  std::size_t size = 0;
  CHECK(nvrtcGetCUBINSize(program, &size) == 4);
  CHECK(nvrtcGetCUBINSize(program, nullptr) == 3);
  const char* lowered = nullptr;
  CHECK(nvrtcGetLoweredName(program, "k", &lowered) == 9);
  CHECK(nvrtcAddNameExpression(program, "k") == 0);
  CHECK(nvrtcCompileProgram(program, 0, nullptr) == 0);
  CHECK(nvrtcAddNameExpression(program, "other") == 8);
  CHECK(nvrtcGetLoweredName(program, "other", &lowered) == 10);
  CHECK(nvrtcGetLoweredName(program, "k", &lowered) == 0);
  CHECK(std::string(lowered) == "_Z1kv");
  CHECK(nvrtcGetPTXSize(program, &size) == 0);
  std::size_t cubin_size = 0;
  CHECK(nvrtcGetCUBINSize(program, &cubin_size) == 0);
  std::string text(size, ' '), cubin(cubin_size, ' ');
  CHECK(nvrtcGetPTX(program, text.data()) == 0);
  CHECK(nvrtcGetCUBIN(program, cubin.data()) == 0);
  CHECK(text.back() == '\0');
  CHECK(text.find('\0') == text.size() - 1);
  CHECK(contains(text, "\n.version "));
  CHECK(aiocuda::emulator::abi::image_of_text(text) == cubin);
  CHECK(!aiocuda::emulator::abi::image_of_text(text.substr(0, text.size() / 2)));
  CHECK(nvrtcGetLTOIRSize(program, &size) == 0);
  CHECK(size == 0);
  CHECK(nvrtcGetPCHCreateStatus(program) == 13);
  void* const stale = program;
  CHECK(nvrtcDestroyProgram(&program) == 0);
  CHECK(program == nullptr);
  CHECK(nvrtcCompileProgram(stale, 0, nullptr) == 4);
}

TEST_CASE("errors carry the program's name and the user's line") {
  const Compiled compiled =
      compile({.source = "// one\nextern \"C\" __global__ void k(float* x) {\n  __shared__ int s[4];\n"
                         "  x[0] = undefined_name;\n  s[0] = \"text\";\n}\n",
               .name = "my kernels.cu"});
  CHECK(compiled.result == 6);
  CAPTURE(compiled.log);
  CHECK(contains(compiled.log, "my kernels.cu(4): error:"));
  CHECK(contains(compiled.log, "undefined_name"));
  CHECK(contains(compiled.log, "my kernels.cu(5): error:"));
  CHECK(contains(compiled.log, "2 errors detected in the compilation of \"my kernels.cu\"."));
  CHECK_FALSE(contains(compiled.log, "/tmp"));
  CHECK_FALSE(contains(compiled.log, "__direct__"));
}

TEST_CASE("messages quote nothing that the user did not write") {
  const Compiled compiled = compile(
      {.source = "__global__ void k(int* p) { p[threadIdx.x] = missing; }\n__constant__ int c = also_missing;"});
  CHECK(compiled.result == 6);
  CAPTURE(compiled.log);
  CHECK(contains(compiled.log, "kernels.cu(1): error:"));
  CHECK(contains(compiled.log, "kernels.cu(2): error:"));
  CHECK_FALSE(contains(compiled.log, "aiocuda"));
  CHECK_FALSE(contains(compiled.log, "__constvar__"));
}

TEST_CASE("errors in a preprocessor line, a header and a template are at their own lines") {
  const Compiled directive = compile({.source = "\n\n#error \"stop here\"\n", .name = ""});
  CHECK(directive.result == 6);
  CHECK(contains(directive.log, "default_program(3): error:"));
  CHECK(contains(directive.log, "stop here"));
  const Compiled header =
      compile({.source = "#include \"parts/inner.h\"\n", .headers = {{"parts/inner.h", "\nint x = ;\n"}}});
  CHECK(header.result == 6);
  CAPTURE(header.log);
  CHECK(contains(header.log, "parts/inner.h(2): error:"));
  const Compiled instance = compile(
      {.source = "template <class T> __global__ void k(T* x) {\n  x->missing();\n}\n", .name_expressions = {"k<int>"}});
  CHECK(instance.result == 6);
  CHECK(contains(instance.log, "kernels.cu(2): error:"));
  const Compiled name = compile({.source = "__global__ void k() {}", .name_expressions = {"no_such<int>"}});
  CHECK(name.result == 6);
  CHECK(contains(name.log, "no_such"));
}

TEST_CASE("warnings are in the log of a compilation that succeeds, and -w silences them") {
  const std::string source = "#warning \"look here\"\nextern \"C\" __global__ void k(int* x) { x[0] = 1; }\n";
  const Compiled loud = compile({.source = source});
  CHECK(loud.succeeded());
  CHECK(contains(loud.log, "kernels.cu(1): warning:"));
  CHECK(contains(loud.log, "look here"));
  const Compiled quiet = compile({.source = source, .options = {"-w"}});
  CHECK(quiet.succeeded());
  CHECK(quiet.log.empty());
}

TEST_CASE("headers handed over with the program are included, by either form, also by one another") {
  CHECK(
      answer({.source = "#include <one.h>\n#include \"dir/two.h\"\nextern \"C\" __global__ void k(int* x) { x[0] = "
                        "one() + TWO; }",
              .headers = {{"one.h", "#pragma once\n#include \"dir/two.h\"\n__device__ int one() { return TWO * 10; }"},
                          {"dir/two.h", "#ifndef T\n#define T\n#define TWO 2\n#endif"}}}) == 22);
}

TEST_CASE("options reach the program") {
  const std::string source = "extern \"C\" __global__ void k(int* x) { x[0] = VALUE; }";
  CHECK(answer({.source = source, .options = {"-DVALUE=3"}}) == 3);
  CHECK(answer({.source = source, .options = {"--define-macro=VALUE=4"}}) == 4);
  CHECK(answer({.source = source, .options = {"-D", "VALUE=5"}}) == 5);
  CHECK(answer({.source = source, .options = {"-DVALUE=__CUDA_ARCH__", "-arch=sm_90"}}) == 900);
  CHECK(answer({.source = source, .options = {"-DVALUE=__CUDA_ARCH__", "--gpu-architecture=compute_100"}}) == 1000);
  CHECK(answer({.source = source, .options = {"-DVALUE=__cplusplus", "--std=c++20"}}) > 201703);
  CHECK(answer({.source = source, .options = {"-DVALUE=__CUDACC_RTC__", "-DN=7", "-UN"}}) == 1);
  const ScratchDirectory directory;
  std::ofstream(directory.path() / "on_disk.h") << "#define ON_DISK 12\n";
  const std::string including = "#include \"on_disk.h\"\nextern \"C\" __global__ void k(int* x) { x[0] = ON_DISK; }";
  CHECK(answer({.source = including, .options = {"-I" + directory.path().string()}}) == 12);
  CHECK(answer({.source = including, .options = {"--include-path=" + directory.path().string()}}) == 12);
  std::ofstream(directory.path() / "on_disk.h") << "#define ON_DISK 13\n";
  CHECK(answer({.source = including, .options = {"-I" + directory.path().string()}}) == 13);
  CHECK(
      compile({.source = "__global__ void k() {}",
               .options = {"-default-device", "--device-as-default-execution-space", "-rdc=true", "-dc",
                           "--maxrregcount=32", "-lineinfo", "--use_fast_math", "-ftz=true", "--prec-div=false",
                           "--split-compile=2", "-G", "--pch", "-dopt=on", "--ptxas-options=-v", "--diag-suppress=177",
                           "--fmad=false", "--extra-device-vectorization", "--version-ident=true"}})
          .succeeded());
}

TEST_CASE("options that do not exist are refused by name") {
  for (const char* option : {"--no-such-option", "-std=c++98", "-arch=sm_1", "plain", "--fmad=maybe"}) {
    CAPTURE(option);
    const Compiled compiled = compile({.source = "__global__ void k() {}", .options = {option}});
    CHECK(compiled.result == 5);
    CHECK(contains(compiled.log, "nvrtc: error:"));
  }
}

TEST_CASE("what the emulated driver does not do is refused at its line, with the reason") {
  const std::pair<const char*, const char*> cases[] = {
      {"int x; asm volatile(\"wgmma.fence.sync.aligned;\"); p[0] = x;", "inline PTX: wgmma.fence"},
      {"other<<<1, 1>>>(p);", "dynamic parallelism"},
      {"__cluster_map_shared_multicast(p, 1);", "multicast"},
  };
  for (const auto& refused : cases) {
    const char* const statement = refused.first;
    const char* const reason = refused.second;
    CAPTURE(statement);
    const Compiled compiled =
        compile({.source = std::string("__global__ void other(int* p) {}\n\n__global__ void k(int* p) {\n") +
                           statement + "\n}"});
    CHECK(compiled.result == 6);
    CAPTURE(compiled.log);
    CHECK(contains(compiled.log, "kernels.cu(4): error: "));
    CHECK(contains(compiled.log, reason));
    CHECK(contains(compiled.log, "is not supported on the emulated driver") +
              contains(compiled.log, "are not supported on the emulated driver") ==
          1);
  }
  // A function that no kernel uses may contain assembly.
  CHECK(answer({.source =
                    "__device__ unsigned lane() { unsigned l; asm(\"mov.u32 %0, %laneid;\" : \"=r\"(l)); return l; }\n"
                    "extern \"C\" __global__ void k(int* x) { asm volatile(\"\" ::: \"memory\"); x[0] = 6; }"}) == 6);
}

TEST_CASE("a header that is not there is named, with what is there") {
  const Compiled compiled = compile({.source = "#include <thrust/device_vector.h>\n"});
  CHECK(compiled.result == 6);
  CAPTURE(compiled.log);
  CHECK(contains(compiled.log, "kernels.cu(1): catastrophic error:"));
  CHECK(contains(compiled.log, "thrust/device_vector.h"));
  CHECK(contains(compiled.log, "must lie on an --include-path"));
}

TEST_CASE("the host's headers and functions are there where a setting asks for them, and only then") {
  const Program program{.source = R"(
    #include <stdio.h>
    int helper(int a) { return a + 1; }
    int counter = 41;
    extern "C" __global__ void k(int* x) { x[0] = helper(counter); })"};
  CHECK(contains(compile(program).log, "could not open source file \"stdio.h\""));
  const EnvironmentVariable setting("AIOCUDA_EMULATOR_HOST_CODE", "1");
  CHECK(answer(program) == 42);
}

TEST_CASE("CUDA's headers and the standard library's can be included") {
  const EnvironmentVariable setting("AIOCUDA_EMULATOR_HOST_CODE", "1");
  CHECK(answer({.source = R"(
    #include <cuda_runtime.h>
    #include <device_launch_parameters.h>
    #include <stdint.h>
    #include <math.h>
    #include <stdio.h>
    #include <math_constants.h>
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <cooperative_groups.h>
    extern "C" __global__ void k(int* x) { uint8_t small = 300; x[0] = small + (int)CUDART_PI_F; })"}) == 47);
  CHECK(answer({.source = R"(
    #include <type_traits>
    #include <cstdint>
    #include <limits>
    #include <utility>
    #include <cmath>
    #include <algorithm>
    #include <array>
    #include <cuda/std/type_traits>
    #include <cuda/std/limits>
    template <class T> __device__ T most() { static_assert(std::is_integral<T>::value, "");
      return std::numeric_limits<T>::max(); }
    extern "C" __global__ void k(int* x) {
      std::array<int, 2> a = {most<std::int8_t>(), 3};
      static_assert(cuda::std::is_same_v<int, int>, "");
      x[0] = std::min(a[0], a[1]) + (int)std::sqrt(16.0f) + (int)sqrtf(4.0f) + (int)std::abs(-1.0f);
    })"}) == 10);
}

TEST_CASE("a multiply and an add are fused unless told otherwise, intrinsics never") {
  const std::string source = R"(extern "C" __global__ void k(const float* a, float* out) {
    out[0] = a[0] * a[0] - a[1];
    out[1] = __fadd_rn(__fmul_rn(a[0], a[0]), -a[1]);
    out[2] = __fmaf_rn(a[0], a[0], -a[1]);
  })";
  const float exact = 1.0f / (1 << 24);  // (1 + 2^-12)^2 - (1 + 2^-11)
  const float a[2] = {1 + 1.0f / 4096, 1 + 1.0f / 2048};
  float out[3];
  const Module fused(Program{.source = source});
  fused.launch("k", {}, &a[0], &out[0]);
#if defined(__FMA__) || defined(__aarch64__)
  CHECK(out[0] == exact);
#endif
  CHECK(out[1] == 0.0f);
  CHECK(out[2] == exact);
  const Module separate(Program{.source = source, .options = {"--fmad=false"}});
  separate.launch("k", {}, &a[0], &out[0]);
  CHECK(out[0] == 0.0f);
}

TEST_CASE("without a compiler the log says what was looked for") {
  const EnvironmentVariable none("AIOCUDA_CXX", "");
  const EnvironmentVariable empty("PATH", "/nonexistent");
  const Compiled compiled = compile({.source = "__global__ void without_compiler() {}"});
  CHECK(compiled.result == 6);
  CAPTURE(compiled.log);
  CHECK(contains(compiled.log, "clang++"));
  CHECK(contains(compiled.log, "/nonexistent"));
  CHECK(contains(compiled.log, "apt install"));
  const EnvironmentVariable wrong("AIOCUDA_CXX", "no-such-compiler");
  CHECK(contains(compile({.source = "__global__ void x() {}"}).log, "AIOCUDA_CXX says \"no-such-compiler\""));
}

TEST_CASE("nothing is left in the temporary directory") {
  const ScratchDirectory directory;
  const EnvironmentVariable temporary("TMPDIR", directory.path());
  CHECK(compile({.source = "__global__ void leaves_nothing() {}"}).succeeded());
  CHECK(compile({.source = "__global__ void fails() { error }"}).result == 6);
  CHECK(std::filesystem::is_empty(directory.path()));
  const EnvironmentVariable missing("TMPDIR", "/nonexistent");
  const Compiled compiled = compile({.source = "__global__ void nowhere() {}"});
  CHECK(compiled.result == 6);
  CHECK(contains(compiled.log, "/nonexistent"));
}

TEST_CASE("a flow callback cancels") {
  void* program = nullptr;
  REQUIRE(nvrtcCreateProgram(&program, "__global__ void k() {}", nullptr, 0, nullptr, nullptr) == 0);
  CHECK(nvrtcSetFlowCallback(program, [](void*, void*) { return 1; }, nullptr) == 0);
  CHECK(nvrtcCompileProgram(program, 0, nullptr) == 16);
  nvrtcDestroyProgram(&program);
}

TEST_CASE("a function that the program does not define is an error in NVRTC's words, at its declaration") {
  const std::string source =
      "namespace a {\ntemplate <class T>\n__device__ T other(T);\n}\n"
      "extern \"C\" __device__ int plain(int);\n"
      "__global__ void k(int* x) { *x = a::other(1) + plain(1) + plain(2); }";
  const Compiled compiled = compile({source});
  CHECK(compiled.result == 6);
  CHECK(contains(compiled.log, "kernels.cu(3): error: Unresolved extern function 'int a::other<int>(int)'"));
  CHECK(contains(compiled.log, "  __device__ T other(T);\n               ^\n"));
  CHECK(contains(compiled.log, "kernels.cu(5): error: Unresolved extern function 'plain'"));
  CHECK(contains(compiled.log, "2 errors detected"));
  CHECK_FALSE(contains(compiled.log, "undefined reference"));
  CHECK_FALSE(contains(compiled.log, "linker"));
  CHECK_FALSE(contains(compiled.log, "aiocuda_device"));
  CHECK(compile({source, {"-rdc=true"}}).succeeded());
}
