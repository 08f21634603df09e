// Clusters: a block's place in its cluster, and the barrier of the cluster. Threads arrive and wait one by one; a block
// arrives when all its threads have that have not returned. The other blocks run on other threads of the host.
#include "block.hpp"
#include "checks.hpp"

extern "C" {
[[gnu::visibility("hidden")]] extern __thread aiocuda::emulator::runtime::Index3 blockIdx;
// 1 in each dimension where the launch has no clusters.
[[gnu::visibility("hidden")]] __thread aiocuda::emulator::runtime::Index3 aiocuda_cluster_dim;
[[gnu::visibility("hidden")]] __thread bool aiocuda_cluster_is_given;
}

namespace aiocuda::emulator::runtime {
namespace {

constexpr int cuda_error_launch_failed = 719;

void arrive(Block&) {
  tell_met(abi::meeting_arrival, 0, 0);
  if (services->arrive_in_cluster != nullptr) services->arrive_in_cluster();
}

void pass(Block& b) {
  tell_met(abi::meeting_of_cluster, 0, 0);
  ++b.cluster_rounds;
  b.missing_in_cluster = b.live;
  b.waiting_for_cluster = 0;
  release_group(b, cluster_group);
}

bool has_met(const Block& b) {
  return services->has_met_cluster == nullptr || services->has_met_cluster(b.cluster_rounds + 1);
}

}  // namespace

unsigned blocks_of_cluster() { return aiocuda_cluster_dim.x * aiocuda_cluster_dim.y * aiocuda_cluster_dim.z; }
unsigned rank_in_cluster() {
  const Index3& extent = aiocuda_cluster_dim;
  return blockIdx.x % extent.x + extent.x * (blockIdx.y % extent.y + extent.y * (blockIdx.z % extent.z));
}

void begin_cluster(const abi::Launch& launch) {
  aiocuda_cluster_is_given = launch.cluster.x != 0;
  if (!aiocuda_cluster_is_given) {
    aiocuda_cluster_dim = {1, 1, 1};
    return;
  }
  aiocuda_cluster_dim = {launch.cluster.x, launch.cluster.y, launch.cluster.z};
  if (blocks_of_cluster() > 1) show_own_shared();
}

void leave_cluster_barrier(Block& b, const Fiber& fiber) {
  // The barrier has counted a thread that arrived in this round.
  if (fiber.cluster_arrivals > b.cluster_rounds) return;
  if (--b.missing_in_cluster == 0 && b.live != 0) arrive(b);
}

void look_at_cluster(Block& b) {
  if (b.missing_in_cluster == 0 && has_met(b)) pass(b);
}

bool wait_for_cluster(Block& b) {
  if (b.waiting_for_cluster == 0 || b.missing_in_cluster != 0) return false;
  if (services->meet_cluster != nullptr) services->meet_cluster(b.cluster_rounds + 1);
  pass(b);
  return true;
}

}  // namespace aiocuda::emulator::runtime

using namespace aiocuda::emulator::runtime;

extern "C" {

[[gnu::visibility("hidden")]] void aiocuda_cluster_arrive(int) {
  Block& b = *current_block();
  Fiber& self = b.fibers[b.current];
  if (self.is_in_cluster_barrier)
    fail(cuda_error_launch_failed, "a thread arrives twice at the barrier of its cluster and does not wait between");
  self.is_in_cluster_barrier = true;
  self.cluster_arrivals = b.cluster_rounds + 1;
  if (--b.missing_in_cluster == 0) arrive(b);
}

[[gnu::visibility("hidden")]] void aiocuda_cluster_wait(int line) {
  Block& b = *current_block();
  Fiber& self = b.fibers[b.current];
  if (!self.is_in_cluster_barrier)
    fail(cuda_error_launch_failed, "a thread waits at the barrier of its cluster and has not arrived there");
  self.is_in_cluster_barrier = false;
  look_at_cluster(b);
  if (b.cluster_rounds >= self.cluster_arrivals) return;
  ++b.waiting_for_cluster;
  wait_in_group(b, cluster_group, line);
}
}
