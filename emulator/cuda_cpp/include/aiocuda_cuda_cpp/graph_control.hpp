// Functions by which a kernel tells the conditional nodes of its graph what to do, and launches graphs. A handle of a
// condition is the address of a node's value.
#pragma once

#include "block.hpp"
#include "runtime_types.hpp"


extern "C" inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value) {
  __atomic_store_n(reinterpret_cast<unsigned int*>(handle), value, __ATOMIC_RELEASE);
}

extern "C" {
AIOCUDA_RUNTIME int aiocuda_launch_graph(void* executable, unsigned long long how);
AIOCUDA_RUNTIME void* aiocuda_current_graph();
}

// Streams that stand for the ways to launch.
#define cudaStreamGraphTailLaunch ((cudaStream_t)0x0100000000000000)
#define cudaStreamGraphFireAndForget ((cudaStream_t)0x0200000000000000)
#define cudaStreamGraphFireAndForgetAsSibling ((cudaStream_t)0x0300000000000000)

extern "C" inline cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return (cudaError_t)aiocuda_launch_graph(executable, (unsigned long long)stream);
}
extern "C" inline cudaGraphExec_t cudaGetCurrentGraphExec() { return (cudaGraphExec_t)aiocuda_current_graph(); }
