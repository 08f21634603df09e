// Inline PTX: the instructions by value, and those that are refused by name.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "support.hpp"

using namespace nvrtc_tests;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Case {
  const char* instruction;  // reads %1, %2 and %3, writes %0
  unsigned a, b, c;
  unsigned expected;
};

unsigned word_of(float value) {
  unsigned word = 0;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

}  // namespace

TEST_CASE("instructions of three operands of 32 bits") {
  const Case cases[] = {
      {"add.s32 %0, %1, %2", 0x7fffffff, 1, 0, 0x80000000},
      {"sub.u32 %0, %1, %2", 3, 5, 0, 0xfffffffe},
      {"mul.lo.s32 %0, %1, %2", 0x10001, 0x10001, 0, 0x20001},
      {"mul.hi.u32 %0, %1, %2", 0x80000000, 6, 0, 3},
      {"mul.hi.s32 %0, %1, %2", 0xffffffff, 6, 0, 0xffffffff},
      {"mad.lo.u32 %0, %1, %2, %3", 7, 8, 9, 65},
      {"min.s32 %0, %1, %2", 0xffffffff, 2, 0, 0xffffffff},
      {"min.u32 %0, %1, %2", 0xffffffff, 2, 0, 2},
      {"and.b32 %0, %1, %2", 0xf0f0, 0xff00, 0, 0xf000},
      {"xor.b32 %0, %1, 5", 6, 0, 0, 3},
      {"shl.b32 %0, %1, %2", 1, 40, 0, 0},
      {"shr.s32 %0, %1, %2", 0x80000000, 40, 0, 0xffffffff},
      {"shr.u32 %0, %1, %2", 0x80000000, 31, 0, 1},
      {"shf.l.wrap.b32 %0, %1, %2, %3", 0x80000000, 1, 33, 3},
      {"bfe.u32 %0, %1, %2, %3", 0xabcd1234, 8, 8, 0x12},
      {"bfe.s32 %0, %1, %2, %3", 0xabcd9234, 8, 8, 0xffffff92},
      {"bfi.b32 %0, %1, %2, 8, 4", 0xf, 0x1000, 0, 0x1f00},
      {"bfind.u32 %0, %1", 0x00010000, 0, 0, 16},
      {"bfind.s32 %0, %1", 0xfffffff0, 0, 0, 3},
      {"brev.b32 %0, %1", 1, 0, 0, 0x80000000},
      {"popc.b32 %0, %1", 0xff00ff, 0, 0, 16},
      {"clz.b32 %0, %1", 0, 0, 0, 32},
      {"prmt.b32 %0, %1, %2, %3", 0x33221100, 0x77665544, 0x7410, 0x77441100},
      {"prmt.b32 %0, %1, %2, %3", 0x80, 0, 0x0008, 0x808080ff},
      {"lop3.b32 %0, %1, %2, %3, 0x96", 0xff, 0x0f, 0x33, 0xff ^ 0x0f ^ 0x33},
      {"sad.u32 %0, %1, %2, %3", 3, 10, 100, 107},
      {"dp4a.s32.s32 %0, %1, %2, %3", 0xff020304, 0x01010101, 10, 18},
      {"vabsdiff4.u32.u32.u32.add %0, %1, %2, %3", 0x01020304, 0x04030201, 5, 13},
      {"fma.rn.f32 %0, %1, %2, %3", word_of(2), word_of(3), word_of(4), word_of(10)},
      {"add.rz.f32 %0, %1, %2", word_of(1), word_of(1.1920929e-7f * 0.75f), 0, word_of(1)},
      {"add.f32 %0, %1, 0f3F800000", word_of(1.5f), 0, 0, word_of(2.5f)},
      {"max.f32 %0, %1, %2", word_of(NAN), word_of(-3), 0, word_of(-3)},
      {"abs.f32 %0, %1", word_of(-3), 0, 0, word_of(3)},
      {"rcp.approx.f32 %0, %1", word_of(4), 0, 0, word_of(0.25f)},
      {"cvt.rni.s32.f32 %0, %1", word_of(2.5f), 0, 0, 2},
      {"cvt.rpi.s32.f32 %0, %1", word_of(-2.5f), 0, 0, static_cast<unsigned>(-2)},
      {"cvt.rzi.u32.f32 %0, %1", word_of(-7), 0, 0, 0},
      {"cvt.rn.f32.s32 %0, %1", static_cast<unsigned>(-7), 0, 0, word_of(-7)},
      {"cvt.u32.u8 %0, %1", 0x1ff, 0, 0, 0xff},
      {"cvt.sat.u8.s32 %0, %1", 700, 0, 0, 0xff},
      {"cvt.rna.tf32.f32 %0, %1", 0x3f801fff, 0, 0, 0x3f802000},
      {"cvt.rn.f16x2.f32 %0, %1, %2", word_of(2), word_of(1), 0, 0x40003c00},
      {"cvt.rn.bf16x2.f32 %0, %1, %2", word_of(2), word_of(1), 0, 0x40003f80},
      {"add.f16x2 %0, %1, %2", 0x40003c00, 0x3c003c00, 0, 0x42004000},
      {"{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.b32 %0, 7, %3, p; }", 0xffffffff, 1, 9, 7},
      {"{ .reg .pred p; setp.lt.u32 p, %1, %2; @p mov.u32 %0, 7; @!p mov.u32 %0, %3; }", 0xffffffff, 1, 9, 9},
      {"{ .reg .u32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %3, 0; }", 0xffffffff, 1, 9, 10},
      {"{ .reg .b64 t; mov.b64 t, {%1, %2}; shr.u64 t, t, 16; cvt.u32.u64 %0, t; }", 0x12345678, 0xabcd, 0, 0xabcd1234},
      {"{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, l}; }", 0x12345678, 0, 0, 0x56781234},
      {"set.eq.u32.u32 %0, %1, %2", 4, 4, 0, 0xffffffff},
      {"not.b32 %0, %1;\\n\\tneg.s32 %0, %0", 4, 0, 0, 5},
  };
  std::string source;
  std::size_t count = 0;
  for (const Case& c : cases) {
    source += "extern \"C\" __global__ void k" + std::to_string(count++) +
              "(unsigned* out, unsigned a, unsigned b, unsigned c) { unsigned d; asm(\"" + c.instruction +
              ";\" : \"=r\"(d) : \"r\"(a), \"r\"(b), \"r\"(c)); out[0] = d; }\n";
  }
  const Module module(source.c_str());
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(cases[i].instruction);
    unsigned out = 0;
    module.launch("k" + std::to_string(i), {}, &out, cases[i].a, cases[i].b, cases[i].c);
    CHECK(out == cases[i].expected);
  }
}

TEST_CASE("loads, stores, atomics and copies, of every memory") {
  const Module module(R"(extern "C" __global__ void k(int* x, double* y, float4* z) {
    __shared__ __align__(16) int kept[8];
    int a, b;
    asm volatile("ld.global.ca.v2.s32 {%0, %1}, [%2+8];" : "=r"(a), "=r"(b) : "l"(x));
    const unsigned address = (unsigned)__cvta_generic_to_shared(kept);
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" :: "r"(address), "r"(a), "r"(b) : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" :: "r"(address + 16), "l"(x));
    asm volatile("cp.async.wait_group %0;" :: "n"(0));
    x[4] = kept[0]; x[5] = kept[1]; x[6] = kept[4] + kept[7];
    int before;
    asm volatile("atom.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(x + 7), "r"(5));
    asm volatile("red.global.max.s32 [%0], %1;" :: "l"(x + 7), "r"(before + 100));
    double d;
    asm("ld.global.nc.f64 %0, [%1];" : "=d"(d) : "l"(y));
    asm("st.global.cs.f64 [%0], %1;" :: "l"(y + 1), "d"(d * 2));
    float4 v;
    asm("ld.global.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(z));
    asm volatile("prefetch.global.L2 [%0]; membar.gl;" :: "l"(z));
    z[1] = make_float4(v.w, v.z, v.y, v.x);
  })");
  alignas(16) int x[8] = {1, 2, 3, 4, 0, 0, 0, 50};
  double y[2] = {1.5, 0};
  alignas(16) float z[8] = {1, 2, 3, 4};
  module.launch("k", {}, &x[0], &y[0], &z[0]);
  CHECK(x[4] == 3);
  CHECK(x[5] == 4);
  CHECK(x[6] == 1 + 4);
  CHECK(x[7] == 150);
  CHECK(y[1] == 3);
  CHECK(z[4] == 4);
  CHECK(z[7] == 1);
}

TEST_CASE("barriers, votes and shuffles between threads") {
  const Module module(R"(extern "C" __global__ void k(unsigned* out) {
    __shared__ unsigned kept[128], ones[64];
    unsigned lane, thread;
    asm("mov.u32 %0, %%laneid; mov.u32 %1, %%tid.x;" : "=r"(lane), "=r"(thread));
    kept[thread] = thread;
    asm volatile("bar.sync 0;" ::: "memory");
    unsigned other = kept[127 - thread];
    // Each half of the block meets by itself.
    if (thread < 64) { ones[thread] = 1; asm volatile("bar.sync 1, 64;" ::: "memory"); other += ones[63 - thread]; }
    else { asm volatile("bar.sync 2, 64;" ::: "memory"); }
    unsigned moved, votes;
    asm volatile("{ .reg .pred p; shfl.sync.down.b32 %0|p, %1, 4, 31, 0xffffffff; @!p mov.b32 %0, 999; }" : "=r"(moved) : "r"(lane));
    asm volatile("{ .reg .pred p; setp.ge.u32 p, %1, 30; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(votes) : "r"(lane));
    out[thread * 3] = other; out[thread * 3 + 1] = moved; out[thread * 3 + 2] = votes;
  })");
  std::vector<unsigned> out(128 * 3);
  module.launch("k", {.block = {128}}, out.data());
  for (unsigned t = 0; t < 128; ++t) {
    CAPTURE(t);
    CHECK(out[t * 3] == 127 - t + (t < 64 ? 1 : 0));
    CHECK(out[t * 3 + 1] == (t % 32 < 28 ? t % 32 + 4 : 999));
    CHECK(out[t * 3 + 2] == 0xc0000000u);
  }
}

TEST_CASE("mbarrier: phases, the threads that are missing, and bytes that are owed") {
  const Module module(R"(
    __device__ unsigned is_past(unsigned at, unsigned long long state) {
      unsigned past;
      asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                   : "=r"(past) : "r"(at), "l"(state));
      return past;
    }
    __device__ unsigned is_past_parity(unsigned at, unsigned parity) {
      unsigned past;
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                   : "=r"(past) : "r"(at), "r"(parity));
      return past;
    }
    extern "C" __global__ void k(unsigned* out) {
      __shared__ unsigned long long word;
      const unsigned at = (unsigned)__cvta_generic_to_shared(&word);
      unsigned long long first, second;
      asm volatile("mbarrier.init.shared.b64 [%0], 3;" :: "r"(at));
      asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(first) : "r"(at));
      asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], 64;" : "=l"(second) : "r"(at));
      asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(out[0]) : "l"(first));
      asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(out[1]) : "l"(second));
      out[2] = is_past(at, second);
      asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;" :: "r"(at));
      out[3] = is_past(at, second);
      out[4] = is_past_parity(at, 0);
      out[5] = is_past_parity(at, 1);
      asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(at));
    })");
  std::vector<unsigned> out(6, 9);
  module.launch("k", {}, out.data());
  CHECK(out == std::vector<unsigned>{3, 1, 0, 1, 1, 0});
}

TEST_CASE("labels and branches") {
  const Module module(R"(
    __device__ unsigned steps_to_one(unsigned n) {
      unsigned steps;
      asm("{ .reg .pred p; .reg .u32 left, odd;\n"
          "mov.u32 left, %1; mov.u32 %0, 0;\n"
          "AGAIN_%=: setp.eq.u32 p, left, 1;\n"
          "@p bra.uni DONE_%=;\n"
          "add.u32 %0, %0, 1; and.b32 odd, left, 1;\n"
          "setp.ne.u32 p, odd, 0; @!p bra $even;\n"
          "{ .reg .u32 three; mov.u32 three, 3; mad.lo.u32 left, left, three, 1; }\n"
          "bra AGAIN_%=;\n"
          "$even: shr.u32 left, left, 1; bra AGAIN_%=;\n"
          "DONE_%=:\n}" : "=r"(steps) : "r"(n));
      return steps;
    }
    extern "C" __global__ void k(unsigned* out) {
      out[0] = steps_to_one(7);
      out[1] = steps_to_one(1);
      out[2] = steps_to_one(27);
    }
    extern "C" __global__ void waits(unsigned* out) {
      __shared__ unsigned long long word;
      const unsigned at = (unsigned)__cvta_generic_to_shared(&word);
      if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at));
      __syncthreads();
      if (threadIdx.x == 33) out[0] = 5;
      if (threadIdx.x == 33) asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at) : "memory");
      asm volatile("{ .reg .pred P1;\n"
                   "LAB_WAIT:\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], 0;\n"
                   "@P1 bra.uni DONE;\n"
                   "bra.uni LAB_WAIT;\n"
                   "DONE:\n}" :: "r"(at) : "memory");
      out[1 + threadIdx.x] = out[0];
    }
    extern "C" __global__ void polls(unsigned* out) {
      if (threadIdx.x == 0) {
        asm volatile("{ .reg .pred p; .reg .u32 seen; LOOP: ld.volatile.global.u32 seen, [%0]; setp.eq.u32 p, seen, 0;"
                     "@p bra LOOP; }" :: "l"(out) : "memory");
        out[1] = 1;
      } else if (threadIdx.x == 5) {
        *(volatile unsigned*)out = 9;
      }
    })");
  std::vector<unsigned> out(65, 0);
  module.launch("k", {}, out.data());
  CHECK(std::vector<unsigned>(out.begin(), out.begin() + 3) == std::vector<unsigned>{16, 0, 111});
  module.launch("waits", {.block = {64}}, out.data());
  CHECK(out == std::vector<unsigned>(65, 5));
  out.assign(65, 0);
  module.launch("polls", {.block = {32}}, out.data());
  CHECK(out[1] == 1);
}

TEST_CASE("an instruction that is not supported is refused by its name") {
  for (const char* instruction :
       {"tex.2d.v4.f32.s32 {%0,%0,%0,%0}, [%1, {%1,%1}]",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 16", "tcgen05.wait::ld.sync.aligned",
        "wgmma.fence.sync.aligned", "ret", "mov.u32 %0, %total_smem_size"}) {
    const Compiled compiled = compile({.source = "__global__ void k(int* x) {\n  asm volatile(\"" +
                                                 std::string(instruction) + ";\" : \"=r\"(x[0]) : \"r\"(x[1]));\n}"});
    const std::string word = std::string(instruction).substr(0, std::string(instruction).find(' '));
    CAPTURE(compiled.log);
    CHECK(contains(compiled.log, "kernels.cu(2): error: inline PTX: "));
    CHECK(contains(compiled.log, word.starts_with("mov") ? "%total_smem_size" : word));
  }
}

TEST_CASE("a branch to nowhere is refused") {
  const Compiled compiled = compile({.source = "__global__ void k(int* x) {\n  asm volatile(\"bra somewhere;\");\n}"});
  CHECK(
      contains(compiled.log, "kernels.cu(2): error: inline PTX: a branch to the label somewhere, which is not there"));
}

TEST_CASE("mma: sums of products of every format, against plain loops") {
  struct Shape {
    const char* instruction;
    const char* type;   // of an element, in CUDA C++
    unsigned k;         // the depth
    unsigned per_word;  // elements of a register
    bool is_integer;
  };
  const Shape shapes[] = {
      {"m16n8k16.row.col.f32.f16.f16.f32", "__half", 16, 2, false},
      {"m16n8k8.row.col.f32.f16.f16.f32", "__half", 8, 2, false},
      {"m16n8k16.row.col.f32.bf16.bf16.f32", "__nv_bfloat16", 16, 2, false},
      {"m16n8k8.row.col.f32.tf32.tf32.f32", "float", 8, 1, false},
      {"m16n8k4.row.col.f32.tf32.tf32.f32", "float", 4, 1, false},
      {"m16n8k32.row.col.s32.s8.s8.s32", "signed char", 32, 4, true},
      {"m16n8k16.row.col.s32.s8.s8.s32", "signed char", 16, 4, true},
  };
  for (const Shape& shape : shapes) {
    CAPTURE(shape.instruction);
    const unsigned words = shape.k / 4 / shape.per_word;  // of B; A has twice as many
    std::string a_list, b_list, inputs;
    for (unsigned i = 0; i < 2 * words; ++i) {
      a_list += (i > 0 ? ", %" : "%") + std::to_string(4 + i);
      inputs += (i > 0 ? ", \"r\"(a[" : "\"r\"(a[") + std::to_string(i) + "])";
    }
    for (unsigned i = 0; i < words; ++i) {
      b_list += (i > 0 ? ", %" : "%") + std::to_string(4 + 2 * words + i);
      inputs += ", \"r\"(b[" + std::to_string(i) + "])";
    }
    const std::string letter = shape.is_integer ? "r" : "f";
    const std::string sum = shape.is_integer ? "int" : "float";
    // The places of elements are those of the PTX ISA.
    const std::string source = R"(
      #include <cuda_fp16.h>
      #include <cuda_bf16.h>
      extern "C" __global__ void k(const float* A, const float* B, float* D) {
        const unsigned K = )" + std::to_string(shape.k) +
                               ", E = " + std::to_string(shape.per_word) + R"(;
        const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
        unsigned a[4] = {}, b[2] = {};
        for (unsigned r = 0; r < K / 4 / E; ++r)
          for (unsigned w = 0; w < E; ++w) {
            const unsigned depth = r * 4 * E + t * E + w;
            for (unsigned half = 0; half < 2; ++half)
              (()" + std::string(shape.type) +
                               R"(*)&a[2 * r + half])[w] = ()" + shape.type + R"()A[(g + 8 * half) * K + depth];
            (()" + shape.type + R"(*)&b[r])[w] = ()" +
                               shape.type + R"()B[depth * 8 + g];
          }
        )" + sum + " c[4] = {1, 2, 3, 4};\n" +
                               "asm volatile(\"mma.sync.aligned." + shape.instruction + " {%0, %1, %2, %3}, {" +
                               a_list + "}, {" + b_list + "}, {%0, %1, %2, %3};\" : \"+" + letter + "\"(c[0]), \"+" +
                               letter + "\"(c[1]), \"+" + letter + "\"(c[2]), \"+" + letter + "\"(c[3]) : " + inputs +
                               R"();
        for (unsigned i = 0; i < 4; ++i) D[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = c[i];
      })";
    const Module module(source.c_str());
    std::vector<float> a(16 * shape.k), b(shape.k * 8), d(16 * 8);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 7 % 23) - 11);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i * 5 % 17) - 8);
    module.launch("k", {.block = {32}}, a.data(), b.data(), d.data());
    for (unsigned row = 0; row < 16; ++row) {
      for (unsigned column = 0; column < 8; ++column) {
        float expected = static_cast<float>(row / 8 * 2 + column % 2 + 1);
        for (unsigned depth = 0; depth < shape.k; ++depth) expected += a[row * shape.k + depth] * b[depth * 8 + column];
        CAPTURE(row);
        CAPTURE(column);
        CHECK(d[row * 8 + column] == expected);
      }
    }
  }
}
