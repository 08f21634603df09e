// The program's kernels: ordinary CUDA C++, in a file of its own, with headers and macros.
#include "particle.cuh"

extern "C" __global__ void move(Particle* particles, float seconds, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Particle& particle = particles[i];
    particle.velocity.y -= GRAVITY * seconds;
    particle.position.x += particle.velocity.x * seconds;
    particle.position.y += particle.velocity.y * seconds;
    particle.position.z += particle.velocity.z * seconds;
}
