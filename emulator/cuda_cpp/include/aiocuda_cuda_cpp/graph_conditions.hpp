// What a kernel can tell the conditional nodes of the graph that it runs in. A handle is the address of a node's value.
#pragma once

typedef unsigned long long cudaGraphConditionalHandle;

extern "C" inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value) {
  __atomic_store_n(reinterpret_cast<unsigned int*>(handle), value, __ATOMIC_RELEASE);
}
