"""The emulated NVRTC and NVIDIA's judge the same sources alike. NVIDIA's needs no GPU to compile."""

from __future__ import annotations

import ctypes
import importlib.metadata
import random
import re
from pathlib import Path

import pytest

import aiocuda as ac

pytestmark = pytest.mark.emulated_only

ACCEPTED = {
    "saxpy": """extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
""",
    "sum": """template <class T> __device__ T warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}
__global__ void sum(const float* x, float* out) {
    __shared__ float parts[32];
    float value = warp_sum(x[threadIdx.x]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(out, parts[0]);
}
""",
    "classes": """struct Complex {
    float re, im;
    __host__ __device__ Complex(float a, float b) : re(a), im(b) {}
    __device__ float norm() const { return re * re + im * im; }
};
__constant__ float scale[2];
const int count = 4;
__device__ int calls;
__global__ void julia(float* out) {
    Complex z(threadIdx.x * scale[0], scale[1]);
    for (int i = 0; i < count; i++) z = Complex(z.re * z.re - z.im * z.im, 2 * z.re * z.im);
    atomicAdd(&calls, 1);
    out[threadIdx.x] = z.norm();
}
""",
    "names of the runtime": """struct Shared {
    cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaDeviceProp* properties;
    cudaTextureDesc texture;
    cudaMemcpy3DParms copy;
};
__global__ void name(int* out, Shared shared, cudaStream_t stream = cudaStreamLegacy) {
    out[0] = cudaStreamNonBlocking + cudaEventDisableTiming + cudaReadModeNormalizedFloat + shared.format.x;
    out[1] = cudaErrorInvalidResourceHandle + cudaDevAttrMultiProcessorCount + cudaLimitStackSize;
}
""",
    "assembly": """__device__ unsigned lane() {
    unsigned value;
    asm("mov.u32 %0, %%laneid;" : "=r"(value));
    return value;
}
__global__ void lanes(unsigned* out) {
    extern __shared__ unsigned kept[];
    kept[threadIdx.x] = lane();
    __syncthreads();
    out[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
""",
    "constants": """struct Range { int first, last; };
__constant__ int limit;
__constant__ float weights[8];
__device__ int largest(int a, int b) { return a > b ? a : b; }
__global__ void clip(const int* x, int* y, int n) {
    int kept[4] = {0, 1, 2, 3};
    Range range = {0, limit};
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    switch (i % 4) {
        case 1: range.first = 1; break;
        default: break;
    }
    if (i < n && x[i] == limit) y[i] = largest(kept[i % 4], (range.last)) + int(weights[i % 8]);
}
""",
    "shadows": """__constant__ int c;
__constant__ int member;
struct Kept { int member; __device__ void set(int v) { member = v; } };
__device__ void by_parameter(int* x, int c) { c = 1; x[0] = c; }
__device__ void in_a_loop(int* x) { for (int i = 0, c = 1; i < 3; ++i) x[i] = c++; }
__device__ void captured(int* x) { auto f = [c = x[0]]() mutable { c = 2; return c; }; x[0] = f(); }
__global__ void f(int* x, Kept* kept) {
    enum { c = 3 };
    kept->set(c);
    by_parameter(x, c);
    in_a_loop(x);
    captured(x);
}
""",
}

UNCHANGED = {  # taken as they are, without mistakes
    "branches": r"""__device__ unsigned steps_to_one(unsigned n) {
    unsigned steps;
    asm("{ .reg .pred p; .reg .u32 left, odd;\n"
        "mov.u32 left, %1; mov.u32 %0, 0;\n"
        "AGAIN_%=: setp.eq.u32 p, left, 1;\n"
        "@p bra.uni DONE_%=;\n"
        "add.u32 %0, %0, 1; and.b32 odd, left, 1;\n"
        "setp.ne.u32 p, odd, 0; @!p bra $even_%=;\n"
        "mad.lo.u32 left, left, 3, 1; bra AGAIN_%=;\n"
        "$even_%=: shr.u32 left, left, 1; bra AGAIN_%=;\n"
        "DONE_%=:\n}" : "=r"(steps) : "r"(n));
    return steps;
}
__global__ void k(unsigned* out) { out[0] = steps_to_one(out[0]) + steps_to_one(out[1]); }
""",
    "declared elsewhere": """extern "C" __constant__ float scale;
extern __constant__ const int count, *counted, counts[2 + 1];
namespace n { extern __device__ int calls; }
extern __device__ int known;
extern "C" { extern __managed__ int shared; extern __managed__ int shared; }
extern __constant__ int unused[];
__device__ int known = 3;
__device__ int n::calls;
__global__ void f(float* x) { x[0] = scale + count + n::calls + known + *counted + counts[1] + shared; }
""",
    "grid constants": """struct P { int a; };
typedef const P Fixed;
template <class T> __global__ void of_any(const __grid_constant__ T value, T* x) { *x = value; }
template <class... T> __global__ void of_many(int* x, const __grid_constant__ T... values) { *x = sizeof...(values); }
template __global__ void of_any<P>(const __grid_constant__ P, P*);
__global__ void f(const __grid_constant__ P p, P const __grid_constant__ q, P __grid_constant__ const r,
                  __grid_constant__ Fixed s, const __grid_constant__ int, int* const __grid_constant__ x,
                  void (* const __grid_constant__ g)(int), const __grid_constant__ int n = 3) {
    g(p.a + q.a + r.a + s.a + n);
    x[0] = __isGridConstant(&p);
}
""",
}

REFUSED = [
    "int helper(int a) { return a; }",
    "template <class T> T helper(T a) { return a; }",
    "constexpr int helper(int a) { return a; }",
    "__host__ int helper(int a) { return a; }",
    "int helper(int);",
    "struct S { int a; int get() { return a; } };",
    "struct S { S() {} };",
    "struct S { static int a; };",
    "int n = 3;",
    "static float table[4];",
    "extern int n;",
    "const char* text = nullptr;",
    "auto f = [](int a) { return a; };",
    "#include <stdio.h>",
    "#include <cmath>",
    "#include <cstdint>",
    "__global__ void f(int* x) { uint8_t y = 1; }",
    "__global__ void f(int64_t* x) {}",
    "__global__ void f(uint* x) {}",
    "__global__ void f(int* x) { x[0] = INT_MAX; }",
    "__global__ void f(float* x) { x[0] = M_PI + INFINITY; }",
    "__global__ void f(float* x) { x[0] = CUDART_PI_F; }",
    "__global__ void f(unsigned long long* x) { x[0] = __globaltimer(); }",
    "__global__ void f(int* x) { x[0] = std::max(x[0], 1); }",
    "__global__ void f(int* x) { std::size_t n = 1; }",
    "__global__ void f(int* x) { memmove(x, x + 1, 4); }",
    "__global__ void f(int* x) { x[0] = __builtin_popcount(3); }",
    "__global__ void f(int* x) { throw 1; }",
    "__global__ void f(int* x, int n) { int a[n]; x[0] = a[0]; }",
    "__global__ void f(int* x) { __shared__ int a = 3; x[0] = a; }",
    "__global__ void f(int* x) { float* y = x; }",
    "__global__ void f(int* x) { x[0] = nowhere; }",
    "__global__ void f(int* x) { x[0] = __shfl(x[0], 1); }",
    "struct S { int a; }; __global__ void f(S* x) { __shfl_sync(~0u, x[0], 1); }",
    "__global__ void f(float* x) { atomicMax(x, 1.0f); }",
    "__global__ void f(short* x) { atomicAdd(x, (short)1); }",
    "__global__ int f(int* x) { return 1; }",
    "__global__ void f(int* x) { x[0] = x[0] ?: 3; }",
    "__global__ void f(int* x) { exit(1); }",
    "__global__ void f(int n, ...) {}",
    "__constant__ int c; __global__ void f(int* x) { ((c)) = 1; }",
    "__constant__ int c; __global__ void f(int* x) { if (x[0]) c <<= 1; }",
    "namespace n { __constant__ float c; } __global__ void f(int* x) { x[0] = 1, n::c = 1; }",
    "__constant__ int *c, d; __global__ void f(int* x) { *c++ = ++d; }",
    "__constant__ int c; __global__ void f(int* x) { auto g = [&] { --c; }; g(); }",
    "#define BOTH(a) ({ int b = (a); b + b; })\n__global__ void f(int* x) { x[0] = BOTH(x[1]); }",
    "struct S { int n; int a[0]; };",
    "struct S { int n; int a[]; };",
    "template <int n> struct S { int a[n]; }; __global__ void f(int* x) { S<0> s; }",
    "const int n = 1; __global__ void f(int* x) { __shared__ int a[n - 1]; }",
    "__global__ void f(int* x) { int g(int a) { return a; } }",
    "__global__ void f(int* x) { int a[4] = {[0 ... 2] = 4}; }",
    "__global__ void f(int* x) { void* p = &&there; goto *p; there: x[0] = 1; }",
    "__global__ void f(int* x) { __uint128_t a = 1; x[0] = a; }",
    "__global__ void f(int* x) { __float128 a = 1; x[0] = a; }",
    "__global__ void f(int* x) { __auto_type a = 1; x[0] = a; }",
    "__global__ void f(int* x) { _Complex float a = 1; }",
    "__global__ void f(int* x) { x[0] = (int[]){1, 2, 3}[1]; }",
    "__global__ void f(int* x) { __extension__ int a = 1; }",
    '__global__ void f(int* x) { __asm__("mov.u32 %0, 1;" : "=r"(x[0])); }',
    "__global__ void f(int* x) { thread_local int a = 1; x[0] = a; }",
    "__global__ void f(int* x) { x[0] = __sync_fetch_and_add(x, 1); }",
    "__global__ void f(int* x) { x[0] = __atomic_load_n(x, 0); }",
    "__global__ void f(int* x) { x[0] = __builtin_sin(1.0); }",
    "__global__ void f(__grid_constant__ int n) {}",
    "struct P { int a; }; __global__ void f(int* x,\n P\n __grid_constant__\n p) {}",
    "__global__ void f(const int* __grid_constant__ n) {}",
    "template <class T> __global__ void f(const __grid_constant__ T& n) {}",
    "template <class T>\n__global__ void f(__grid_constant__\nT n) {}"
    "template __global__ void f(__grid_constant__ int);",
    "__device__ void f(const\n __grid_constant__ int n) {}",
    "struct S { __device__ void f(const __grid_constant__ int n) {} };",
    "__device__ int f() { auto g = [](const __grid_constant__ int n) { return n; }; return g(1); }",
    "__global__ void f(int* x) {\n const __grid_constant__ int n = 3; x[0] = n; }",
    "struct S {\n const __grid_constant__ int n; };",
    "__global__ void f(int* x) { int $a = 1; x[0] = $a; }",
]
KERNEL = "\n__global__ void k(int* x) { x[0] = 1; }\n"

CHANGES = [  # what people get wrong
    ("__device__ ", ""),
    ("__host__ __device__ ", ""),
    ("__constant__ ", ""),
    (";", ""),
    (")", ""),
    ("}", ""),
    ("threadIdx.x", "threadIdx.w"),
    ("float", "floot"),
    ("const ", ""),
    ("__syncthreads()", "__syncthread()"),
    ("__shared__ ", ""),
    ("atomicAdd", "atomic_add"),
    ("int ", "unsigned "),
    ("__global__ void", "__global__ int"),
    ("blockDim.x", "std::blockDim"),
    ("32", "width"),
]

EXTENSIONS = [  # of g++, in the program "constants"
    ("== limit", "== limit++"),
    ("{0, limit}", "{0, limit = 2}"),
    ("[4] = {0, 1, 2, 3}", "[0] = {}"),
    ("[4] = {0, 1, 2, 3}", "[n] = {}"),
    ("{0, 1, 2, 3}", "{[0] = 0, [1] = 1}"),
    ("weights[8]", "weights[8 - 8]"),
    ("{0, limit}", "{.first = 0, .last = limit}"),
    ("{0, limit}", "(Range){0, limit}"),
    ("case 1:", "case 1 ... 2:"),
    ("(range.last)", "({ range.last; })"),
    ("(range.last)", "__real__ range.last"),
    ("int i =", "register int i ="),
    ("int i =", "__typeof__(n) i ="),
    ("largest(int a", "largest(auto a"),
    # These NVRTC takes.
    ("y[i] =", "weights[0] = 1, y[i] ="),
    ("(range.last)", "(*&limit = 2)"),
    ("x[i] == limit", "__builtin_expect(x[i] == limit, 1)"),
]


class Nvrtc:
    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def compile(self, source: str) -> tuple[bool, str]:
        program = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None)
        options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
        result = self.library.nvrtcCompileProgram(program, 1, options)
        size = ctypes.c_size_t()
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return result == 0, log.value.decode()


@pytest.fixture(scope="module")
def ours() -> Nvrtc:
    path = ac.select_driver().nvrtc_path
    assert path is not None
    return Nvrtc(Path(path))


@pytest.fixture(scope="module")
def theirs() -> Nvrtc:
    try:
        wheel = importlib.metadata.distribution("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("NVIDIA's NVRTC is not installed: it is the wheel nvidia-cuda-nvrtc of the test group")
    for file in wheel.files or []:
        if file.name == "libnvrtc.so.13":
            return Nvrtc(Path(str(file.locate())))
    pytest.skip("this wheel nvidia-cuda-nvrtc has no libnvrtc.so.13")


def line_of_error(log: str) -> int:
    """The line of the first error, of the form that both give; 0 at the end of the source."""
    if log.startswith("At end of source: error: "):
        return 0
    found = re.search(r"^k\.cu\((\d+)\): (?:catastrophic )?error: ", log, re.MULTILINE)
    assert found is not None, log
    return int(found.group(1))


def mutations(count: int) -> list[str]:
    chosen = random.Random(16)
    sources = list(ACCEPTED.values())
    changed: dict[str, None] = {}
    while len(changed) < count:
        source = chosen.choice(sources)
        before, after = chosen.choice(CHANGES)
        places = [match.start() for match in re.finditer(re.escape(before), source)]
        if places:
            place = chosen.choice(places)
            changed[source[:place] + after + source[place + len(before) :]] = None
    return list(changed)


@pytest.mark.parametrize("source", [*ACCEPTED.values(), *UNCHANGED.values()], ids=[*ACCEPTED, *UNCHANGED])
def test_what_nvrtc_accepts_is_accepted(ours, theirs, source):
    for nvrtc in (theirs, ours):
        accepts, log = nvrtc.compile(source)
        assert accepts, log
    assert log.strip("\0") == ""  # nothing of the warnings that the compiler is asked for


def test_what_nvrtc_refuses_is_refused_at_the_same_line(ours, theirs):
    for source in REFUSED:
        logs = []
        for nvrtc in (theirs, ours):
            accepts, log = nvrtc.compile(source + KERNEL)
            assert not accepts, source
            logs.append(log)
        assert line_of_error(logs[1]) == line_of_error(logs[0]), logs


def test_mistakes_are_judged_alike(ours, theirs):
    judged = [(theirs.compile(source), ours.compile(source), source) for source in mutations(16)]  # some 0.3 s each
    for (accepts, their_log), (we_accept, our_log), source in judged:
        assert we_accept == accepts, f"{source}\n{their_log}\n{our_log}"
        if not accepts and source.count("{") == source.count("}"):  # a brace that is missing is noticed anywhere
            assert abs(line_of_error(our_log) - line_of_error(their_log)) <= 1, f"{source}\n{their_log}\n{our_log}"
    assert {accepts for (accepts, _), _, _ in judged} == {True, False}


def test_extensions_of_the_hosts_compiler_are_judged_alike(ours, theirs):
    verdicts = set()
    for before, after in EXTENSIONS:
        source = ACCEPTED["constants"].replace(before, after)
        assert source != ACCEPTED["constants"]
        (accepts, their_log), (we_accept, our_log) = theirs.compile(source), ours.compile(source)
        assert we_accept == accepts, f"{source}\n{their_log}\n{our_log}"
        if not accepts:
            assert line_of_error(our_log) == line_of_error(their_log), f"{source}\n{their_log}\n{our_log}"
        verdicts.add(accepts)
    assert verdicts == {True, False}
