// Functions by which a kernel tells the conditional nodes of its graph what to do. A handle is the address of a node's
// value.
#pragma once

typedef unsigned long long cudaGraphConditionalHandle;

extern "C" inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value) {
  __atomic_store_n(reinterpret_cast<unsigned int*>(handle), value, __ATOMIC_RELEASE);
}
