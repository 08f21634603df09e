// Kernels with one planted bug each, and each one's clean twin. `planted.py` launches them, on the emulated driver with
// its checks and on a GPU under compute-sanitizer. The line of the bug is marked: "bug" for the access that is reported,
// "also" for the other access of a race.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" {

// ---- memory: y holds 100 items, and dynamic shared memory 32, where a launch asks for it

__global__ void overrun_of_global(float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= 100) y[i] = i;  // bug
}
__global__ void overrun_of_global_clean(float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 100) y[i] = i;
}

__global__ void overrun_of_static_shared(float* y) {
  __shared__ float s[32];
  __shared__ float other[32];
  other[threadIdx.x] = 1;
  s[threadIdx.x + 1] = y[threadIdx.x];  // bug
  __syncthreads();
  y[threadIdx.x] = s[1 + threadIdx.x % 31] + other[31 - threadIdx.x];
}
__global__ void overrun_of_static_shared_clean(float* y) {
  __shared__ float s[32];
  __shared__ float other[32];
  other[threadIdx.x] = 1;
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[1 + threadIdx.x % 31] + other[31 - threadIdx.x];
}

__global__ void overrun_of_dynamic_shared(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x + 1] = y[threadIdx.x];  // bug
  __syncthreads();
  y[threadIdx.x] = s[1 + threadIdx.x % 31];
}
__global__ void overrun_of_dynamic_shared_clean(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[1 + threadIdx.x % 31];
}

__global__ void shared_not_requested(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = y[threadIdx.x];  // bug
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x];
}
__global__ void shared_not_requested_clean(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

__global__ void use_after_free(float* y) {
  y[threadIdx.x] = 1;  // bug
}
__global__ void use_after_free_clean(float* y) { y[threadIdx.x] = 1; }

__global__ void use_after_pool_free(float* y) {
  y[threadIdx.x] = 1;  // bug
}
__global__ void use_after_pool_free_clean(float* y) { y[threadIdx.x] = 1; }

__global__ void misaligned(float* y) {
  *(int*)((char*)y + 8 * threadIdx.x + 1) = 1;  // bug
}
__global__ void misaligned_clean(float* y) { *(int*)((char*)y + 4 * threadIdx.x) = 1; }

// ---- races within a launch

__global__ void race_between_blocks(float* y) {
  y[0] += 1;  // bug
}
__global__ void race_between_blocks_clean(float* y) { atomicAdd(y, 1.0f); }

__global__ void race_missing_barrier(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];  // also
  y[threadIdx.x] = s[63 - threadIdx.x];  // bug
}
__global__ void race_missing_barrier_clean(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}

// The barrier at the end of a round is missing: a quick warp writes what a slow one still reads.
__global__ void race_next_round(float* y) {
  __shared__ float s[64];
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    s[threadIdx.x] = y[threadIdx.x] + round;  // bug
    __syncthreads();
    sum += s[63 - threadIdx.x];  // also
  }
  y[threadIdx.x] = sum;
}
__global__ void race_next_round_clean(float* y) {
  __shared__ float s[64];
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    s[threadIdx.x] = y[threadIdx.x] + round;
    __syncthreads();
    sum += s[63 - threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}

__global__ void race_missing_syncwarp(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = y[threadIdx.x];  // also
  y[threadIdx.x] = s[31 - threadIdx.x];  // bug
}
__global__ void race_missing_syncwarp_clean(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = y[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];
}

__global__ void race_in_global(float* y) {
  y[threadIdx.x] = 1;  // also
  if (threadIdx.x < 32) y[64 + threadIdx.x] = y[63 - threadIdx.x];  // bug
}
__global__ void race_in_global_clean(float* y) {
  y[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x < 32) y[64 + threadIdx.x] = y[63 - threadIdx.x];
}

__global__ void race_atomic_and_plain(int* y) {
  if (threadIdx.x == 0) y[0] = 1;  // also
  if (threadIdx.x == 32) atomicAdd(y, 1);  // bug
}
__global__ void race_atomic_and_plain_clean(int* y) { atomicAdd(y, 1); }

// ---- reads of what was never written

__global__ void uninitialised_global(float* y, const float* never_written) {
  y[threadIdx.x] = never_written[threadIdx.x];  // bug
}
__global__ void uninitialised_global_clean(float* y, const float* written) { y[threadIdx.x] = written[threadIdx.x]; }

__global__ void uninitialised_shared(float* y) {
  __shared__ float s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // bug
}
__global__ void uninitialised_shared_clean(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}

// ---- barriers and lanes

__global__ void divergent_barrier(float* y) {
  if (threadIdx.x < 32) {
    y[threadIdx.x] = 1;
    __syncthreads();  // also
  } else {
    y[threadIdx.x] = 2;
    __syncthreads();  // bug
  }
}
__global__ void divergent_barrier_clean(float* y) {
  y[threadIdx.x] = threadIdx.x < 32 ? 1 : 2;
  __syncthreads();
}

__global__ void barrier_after_return(float* y) {
  if (threadIdx.x >= 40) return;
  y[threadIdx.x] = 1;
  __syncthreads();  // bug
}
__global__ void barrier_after_return_clean(float* y) {
  if (threadIdx.x < 40) y[threadIdx.x] = 1;
  __syncthreads();
}

__global__ void shuffle_outside_mask(float* y) {
  float value = y[threadIdx.x];
  if (threadIdx.x < 16) value += __shfl_down_sync(0xffffu, value, 8);  // bug
  y[threadIdx.x] = value;
}
__global__ void shuffle_outside_mask_clean(float* y) {
  float value = y[threadIdx.x];
  if (threadIdx.x < 16) value += __shfl_down_sync(0xffffu, value, 8, 16);
  y[threadIdx.x] = value;
}

__global__ void shuffle_from_gone_lane(float* y) {
  float value = y[threadIdx.x];
  if (threadIdx.x >= 24) return;
  y[threadIdx.x] = __shfl_sync(0xffffffffu, value, 31);  // bug
}
__global__ void shuffle_from_gone_lane_clean(float* y) {
  float value = __shfl_sync(0xffffffffu, y[threadIdx.x], 31);
  if (threadIdx.x >= 24) return;
  y[threadIdx.x] = value;
}

__global__ void vote_without_own_lane(int* y) {
  y[threadIdx.x] = __any_sync(0xffffu, y[threadIdx.x]);  // bug
}
__global__ void vote_without_own_lane_clean(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __any_sync(0xffffu, y[threadIdx.x]);
}

// ---- correct ways to work together, which no check may report

// The last block to come adds up what the others have left (with fences, and one counter).
__global__ void last_block_adds_up(float* y, float* parts, unsigned* count) {
  __shared__ bool is_last;
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    is_last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += parts[i];
    y[0] = sum;
  }
}

// Written before Volta: the lanes of a warp run in step, and the array is volatile.
__global__ void volatile_lanes_in_step(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32) {
    volatile float* v = s;
    v[threadIdx.x] += v[threadIdx.x + 32];
    v[threadIdx.x] += v[threadIdx.x + 16];
    v[threadIdx.x] += v[threadIdx.x + 8];
    v[threadIdx.x] += v[threadIdx.x + 4];
    v[threadIdx.x] += v[threadIdx.x + 2];
    v[threadIdx.x] += v[threadIdx.x + 1];
  }
  if (threadIdx.x == 0) y[0] = s[0];
}

// One warp tells another through shared memory.
__global__ void flag_between_warps(float* y) {
  __shared__ float s[32];
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    s[threadIdx.x] = 2;
    __threadfence_block();
    __syncwarp();
    if (threadIdx.x == 0) flag = 1;
  } else {
    while (flag == 0) {
    }
    __threadfence_block();
    y[threadIdx.x] = s[63 - threadIdx.x];
  }
}

__global__ void counted_in_shared(int* y) {
  __shared__ int counts[4];
  if (threadIdx.x < 4) counts[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&counts[threadIdx.x % 4], 1);
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&y[threadIdx.x], counts[threadIdx.x]);
}

// Launched cooperatively: each block reads what another wrote before the grid met.
__global__ void grid_meets(float* y, float* parts) {
  cg::grid_group grid = cg::this_grid();
  if (threadIdx.x == 0) parts[blockIdx.x] = blockIdx.x;
  grid.sync();
  if (threadIdx.x == 0) y[blockIdx.x] = parts[gridDim.x - 1 - blockIdx.x];
  grid.sync();
  if (threadIdx.x == 0) parts[blockIdx.x] = 0;
}

// Tiles of eight lanes and the lanes that took a branch.
__global__ void groups_of_lanes(int* y) {
  __shared__ int s[64];
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::this_thread_block());
  s[threadIdx.x] = threadIdx.x;
  tile.sync();
  const int neighbour = s[threadIdx.x ^ 7];
  tile.sync();
  s[threadIdx.x] = neighbour;
  if (threadIdx.x % 2 == 0) {
    cg::coalesced_group even = cg::coalesced_threads();
    y[threadIdx.x] = even.shfl(neighbour, 0);
  } else {
    y[threadIdx.x] = s[threadIdx.x];
  }
}

// A structure is stored as a function returns it, and handed on as it lies.
struct Pair {
  double first, second;
};
__device__ Pair pair_of(int i) { return {i + 1.0, i / 2.0}; }
__device__ Pair sum_of(Pair a, Pair b) { return {a.first + b.first, a.second + b.second}; }
__global__ void structures_by_value(Pair* y) {
  y[threadIdx.x] = pair_of(threadIdx.x);
  __syncthreads();
  const Pair sum = sum_of(y[threadIdx.x], y[15 - threadIdx.x]);
  __syncthreads();
  y[threadIdx.x] = sum;
}

// Neighbouring threads write neighbouring bytes.
__global__ void bytes_side_by_side(unsigned char* y) { y[threadIdx.x] = threadIdx.x; }

// All threads read the launch's own argument.
__global__ void argument_of_the_grid(int* const __grid_constant__ y) {
  int* const* there = &y;
  __syncthreads();
  (*there)[threadIdx.x] = __isGridConstant(there) + __isConstant(there);
}

}  // extern "C"
