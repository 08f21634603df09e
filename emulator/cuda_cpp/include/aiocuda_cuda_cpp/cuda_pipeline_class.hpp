// cuda/pipeline: cuda::pipeline. Of one thread it has nothing to do, because copies are done at once. Of a block, the
// stages tell consumers what producers have committed, and producers what consumers have released.
#pragma once

#include "cuda_barrier.hpp"

namespace cuda {

enum class pipeline_role { producer, consumer };

template <thread_scope scope, unsigned char stages>
class AIOCUDA_VISIBLE pipeline_shared_state {
 public:
  pipeline_shared_state() = default;
  barrier_word full[stages];
  barrier_word empty[stages];
};

template <thread_scope scope>
class AIOCUDA_VISIBLE pipeline {
 public:
  pipeline() = default;
  pipeline(barrier_word* full, barrier_word* empty, unsigned stages) : full_(full), empty_(empty), stages_(stages) {}

  void producer_acquire() {
    if (full_ == nullptr || head_ < stages_) return;
    while (empty_[head_ % stages_].phase() < head_ / stages_) ::aiocuda_yield();
  }
  void producer_commit() {
    if (full_ != nullptr) full_[head_ % stages_].arrive(1, false);
    ++head_;
  }
  void consumer_wait() { wait_for(tail_); }
  void consumer_release() {
    if (full_ != nullptr) empty_[tail_ % stages_].arrive(1, false);
    ++tail_;
  }
  // Until all stages but the `prior` latest are there.
  void consumer_wait_prior(unsigned prior) {
    if (head_ > prior) wait_for(head_ - prior - 1);
  }
  bool quit() { return true; }

 private:
  void wait_for(unsigned stage) {
    if (full_ == nullptr) return;
    while (full_[stage % stages_].phase() <= stage / stages_) ::aiocuda_yield();
  }

  barrier_word* full_ = nullptr;
  barrier_word* empty_ = nullptr;
  unsigned stages_ = 1;
  unsigned head_ = 0;
  unsigned tail_ = 0;
};

inline pipeline<thread_scope_thread> make_pipeline() { return {}; }

namespace pipeline_details {
template <class Group, class State>
inline void prepare(const Group& group, State* state, unsigned producers, unsigned consumers) {
  if (group.thread_rank() == 0) {
    for (auto& word : state->full) word.set(producers);
    for (auto& word : state->empty) word.set(consumers);
  }
  group.sync();
}
}  // namespace pipeline_details

template <class Group, thread_scope scope, unsigned char stages>
inline pipeline<scope> make_pipeline(const Group& group, pipeline_shared_state<scope, stages>* state) {
  pipeline_details::prepare(group, state, (unsigned)group.size(), (unsigned)group.size());
  return {state->full, state->empty, stages};
}
template <class Group, thread_scope scope, unsigned char stages>
inline pipeline<scope> make_pipeline(const Group& group, pipeline_shared_state<scope, stages>* state,
                                     size_t producers) {
  pipeline_details::prepare(group, state, (unsigned)producers, (unsigned)(group.size() - producers));
  return {state->full, state->empty, stages};
}
template <class Group, thread_scope scope, unsigned char stages>
inline pipeline<scope> make_pipeline(const Group& group, pipeline_shared_state<scope, stages>* state,
                                     pipeline_role role) {
  const unsigned producers = (unsigned)::__syncthreads_count(role == pipeline_role::producer);
  pipeline_details::prepare(group, state, producers, (unsigned)group.size() - producers);
  return {state->full, state->empty, stages};
}

template <unsigned char prior, thread_scope scope>
inline void pipeline_consumer_wait_prior(pipeline<scope>& of) {
  of.consumer_wait_prior(prior);
}
template <thread_scope scope>
inline void pipeline_producer_commit(pipeline<scope>& of) {
  of.producer_commit();
}

template <class T, class Size, thread_scope scope>
inline void memcpy_async(T* to, const T* from, Size size, pipeline<scope>&) {
  __builtin_memcpy(static_cast<void*>(to), from, (size_t)size);
}
template <class Group, class T, class Size, thread_scope scope>
inline void memcpy_async(const Group& group, T* to, const T* from, Size size, pipeline<scope>&) {
  for (size_t i = group.thread_rank(); i < (size_t)size; i += group.size()) ((char*)to)[i] = ((const char*)from)[i];
}

}  // namespace cuda
