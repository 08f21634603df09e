// Kernels in clusters. Tests compare what they compute with NumPy.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// The bins lie in the dynamic shared memory of the cluster's blocks, one part in each.
extern "C" __global__ void histogram(const int* x, int n, int* bins, int own_bins) {
  extern __shared__ int counts[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < own_bins; i += blockDim.x) counts[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(cluster.map_shared_rank(counts, x[i] / own_bins) + x[i] % own_bins, 1);
  cluster.sync();
  for (int i = threadIdx.x; i < own_bins; i += blockDim.x)
    atomicAdd(&bins[cluster.block_rank() * own_bins + i], counts[i]);
}

// Block 0 of each cluster adds up what the others have in a shared variable.
extern "C" __global__ void __cluster_dims__(2, 2) total(const double* x, double* out) {
  __shared__ double part;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
  if (threadIdx.x == 0) {
    part = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) part += x[block * blockDim.x + i];
  }
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    double sum = 0;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(&part, rank);
    out[blockIdx.x / 2 + gridDim.x / 2 * (blockIdx.y / 2)] = sum;
  }
  cluster.sync();
}

template <int size>
__global__ void __cluster_dims__(size, 1, 1) sizes(unsigned* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = cg::this_cluster().num_blocks();
}

#define REGISTER(name)                            \
  {                                               \
    unsigned value;                               \
    asm("mov.u32 %0, %%" name ";" : "=r"(value)); \
    of_block[next++] = value;                     \
  }
// The block's place, once from cooperative groups and once from PTX.
extern "C" __global__ void places(unsigned* out) {
  cg::cluster_group cluster = cg::this_cluster();
  cg::grid_group grid = cg::this_grid();
  if (threadIdx.x != 1) return;
  unsigned* of_block = out + 28 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  const dim3 index = cluster.block_index(), extent = cluster.dim_blocks(), of = grid.cluster_index(),
             clusters = grid.dim_clusters();
  const unsigned first[14] = {index.x, index.y,    index.z,    extent.x,   extent.y,
                              extent.z, of.x,      of.y,       of.z,       clusters.x,
                              clusters.y, clusters.z, cluster.block_rank(), cluster.num_blocks()};
  int next = 0;
  for (unsigned each : first) of_block[next++] = each;
  REGISTER("cluster_ctaid.x") REGISTER("cluster_ctaid.y") REGISTER("cluster_ctaid.z")
  REGISTER("cluster_nctaid.x") REGISTER("cluster_nctaid.y") REGISTER("cluster_nctaid.z")
  REGISTER("clusterid.x") REGISTER("clusterid.y") REGISTER("clusterid.z")
  REGISTER("nclusterid.x") REGISTER("nclusterid.y") REGISTER("nclusterid.z")
  REGISTER("cluster_ctarank") REGISTER("cluster_nctarank")
}

// Each block writes into the next one's shared memory, by addresses of 32 bits, and arrives at its mbarrier.
extern "C" __global__ void ring(const int* x, int* out, unsigned* ranks) {
  __shared__ int box;
  __shared__ unsigned long long barrier;
  const unsigned box_at = (unsigned)__cvta_generic_to_shared(&box);
  const unsigned barrier_at = (unsigned)__cvta_generic_to_shared(&barrier);
  unsigned rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_at) : "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    unsigned to, remote_barrier, found;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(box_at), "r"((rank + 1) % size));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier) : "r"(barrier_at), "r"((rank + 1) % size));
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(found) : "r"(to));
    ranks[blockIdx.x] = found;
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(x[blockIdx.x]) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote_barrier) : "memory");
  }
  int past = 0;
  while (!past) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(past) : "r"(barrier_at) : "memory");
  }
  if (threadIdx.x == 0) {
    unsigned long long generic;
    asm("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(&box), "r"(rank));
    out[blockIdx.x] = *(int*)generic;
  }
  asm volatile("barrier.cluster.arrive;" ::: "memory");
  asm volatile("barrier.cluster.wait;" ::: "memory");
}

// The same by stores that tell the barrier how many bytes have come.
extern "C" __global__ void stores(const int* x, int* out) {
  __shared__ int box[2];
  __shared__ unsigned long long barrier;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned box_at = (unsigned)__cvta_generic_to_shared(box);
  const unsigned barrier_at = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) {
    box[1] = 1000;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_at) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8;" ::"r"(barrier_at) : "memory");
  }
  cluster.sync();
  if (threadIdx.x == 0) {
    const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
    unsigned to, remote_barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(box_at), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_barrier) : "r"(barrier_at), "r"(next));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to),
                 "r"(x[blockIdx.x]), "r"(remote_barrier) : "memory");
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0+4], %1, [%2];" ::"r"(to),
                 "r"(x[blockIdx.x]), "r"(remote_barrier) : "memory");
  }
  int past = 0;
  while (!past) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(past) : "r"(barrier_at) : "memory");
  }
  if (threadIdx.x < 2) out[2 * blockIdx.x + threadIdx.x] = box[threadIdx.x];
  cluster.sync();
}

// Two blocks answer one another through memory: both run at the same time.
extern "C" __global__ void ping_pong(int* turn, int rounds) {
  const int rank = cg::this_cluster().block_rank();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < rounds; ++i) {
    while (atomicAdd(turn, 0) % 2 != rank) {
    }
    atomicAdd(turn, 1);
  }
}

// Between arriving and waiting a thread does something else: a meeting of its warp. Some threads return before.
extern "C" __global__ void split(int* out, int rounds) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x >= 40) return;
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x == 0) value = i + blockIdx.x;
    auto token = cluster.barrier_arrive();
    __syncwarp(__activemask());
    cluster.barrier_wait(static_cast<decltype(token)&&>(token));
    sum += *cluster.map_shared_rank(&value, (cluster.block_rank() + 1) % cluster.num_blocks());
    cluster.sync();
  }
  if (threadIdx.x == 39) out[blockIdx.x] = sum;
}

// Blocks of the cluster read what others wrote into global memory.
extern "C" __global__ void through_global(const int* x, int* y, int* out) {
  if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x];
  cg::this_cluster().sync();
  if (threadIdx.x == 1) out[blockIdx.x] = y[blockIdx.x ^ 1];
}

// In a cooperative launch the grid meets as well.
extern "C" __global__ void grid_of_clusters(int* parts, int* out) {
  __shared__ int one;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) one = 1 + blockIdx.x;
  cluster.sync();
  if (threadIdx.x == 0) parts[blockIdx.x] = *cluster.map_shared_rank(&one, cluster.block_rank() ^ 1);
  cg::this_grid().sync();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block];
    out[blockIdx.x] = sum;
  }
}

// An address of a block that the cluster does not have.
extern "C" __global__ void no_such_block(int* out) {
  __shared__ int value;
  if (threadIdx.x == 0) value = 1;
  cg::this_cluster().sync();
  *out = *cg::this_cluster().map_shared_rank(&value, 5);
}

// Block 1 fails before the others have what they wait for: its arrival, or its word in memory.
extern "C" __global__ void fails(int* flag, int polls) {
  cg::cluster_group cluster = cg::this_cluster();
  assert(cluster.block_rank() != 1);
  if (polls) {
    while (atomicAdd(flag, 0) == 0) {
    }
  }
  cluster.sync();
}

// Nobody waits between the write and the read.
extern "C" __global__ void race(int* out) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = 0;
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) *cluster.map_shared_rank(&value, 1) = 7;
  if (cluster.block_rank() == 1 && threadIdx.x == 0) out[0] = value;
  cluster.sync();
}

// One element more than the other block has, and one that nobody has written.
extern "C" __global__ void outside(int* out) {
  __shared__ int values[8];
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 7) values[threadIdx.x] = 1;
  cluster.sync();
  int* theirs = cluster.map_shared_rank(values, cluster.block_rank() ^ 1);
  if (threadIdx.x == 0) out[blockIdx.x] = theirs[7];
  if (threadIdx.x == 1) theirs[8] = 1;
  cluster.sync();
}
