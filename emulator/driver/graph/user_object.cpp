// Reference counts, the thread that calls destructors, and the API; see user_object.hpp.
#include "graph/user_object.hpp"

#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "graph/graph.hpp"
#include "host_function.hpp"
#include "thread.hpp"

namespace aiocuda::emulator::graph {
namespace {

// As for host functions, CUDA forbids destructors to call its API.
class Destructors {
 public:
  Destructors() {
    start_thread("cuda-user-objs", [this] { loop(); });
  }
  void call(CUhostFn function, void* data) {
    {
      const std::lock_guard lock(mutex_);
      due_.emplace_back(function, data);
    }
    there_are_some_.notify_one();
  }

 private:
  void loop() {
    const HostFunctionScope scope;
    std::unique_lock lock(mutex_);
    for (;;) {
      there_are_some_.wait(lock, [this] { return !due_.empty(); });
      const auto [function, data] = due_.front();
      due_.pop_front();
      lock.unlock();
      function(data);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable there_are_some_;
  std::deque<std::pair<CUhostFn, void*>> due_;
};

Destructors& destructors() {
  static auto* const made = new Destructors;
  return *made;
}

}  // namespace

UserObjectTable& user_objects() {
  static auto* const table = new UserObjectTable;
  return *table;
}

bool UserObject::release(std::uint64_t count) {
  std::uint64_t held = references_.load();
  do {
    if (held < count) return false;
  } while (!references_.compare_exchange_weak(held, held - count));
  if (held > count) return true;
  user_objects().take(UserObjectTable::handle_of(*this));
  destructors().call(destroy_, data_);
  return true;
}

UserObjectReferences::UserObjectReferences(const UserObjectReferences& other) { add(other); }

UserObjectReferences::~UserObjectReferences() {
  for (const auto& [object, count] : counts_) object->release(count);
}

void UserObjectReferences::add(const UserObjectReferences& other) {
  for (const auto& [object, count] : other.counts_) {
    object->retain(count);
    adopt(object, count);
  }
}

bool UserObjectReferences::release(const std::shared_ptr<UserObject>& object, std::uint64_t count) {
  const auto found = counts_.find(object);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  return object->release(count);
}

}  // namespace aiocuda::emulator::graph

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::graph;

namespace {

bool is_count(unsigned count) { return count > 0 && count <= INT_MAX; }

CUresult resolve_object(CUuserObject handle, unsigned count, std::shared_ptr<UserObject>& object) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = check_may_wait()) return error;
  object = user_objects().find(handle);
  return object && is_count(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* handle, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
  if (const CUresult error = check_initialised()) return error;
  if (const CUresult error = check_may_wait()) return error;
  if (handle == nullptr || destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = user_objects().add(std::make_shared<UserObject>(destroy, data, references));
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
  std::shared_ptr<UserObject> object;
  if (const CUresult error = resolve_object(handle, count, object)) return error;
  object->retain(count);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
  std::shared_ptr<UserObject> object;
  if (const CUresult error = resolve_object(handle, count, object)) return error;
  return object->release(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
  std::shared_ptr<UserObject> object;
  if (const CUresult error = resolve_object(handle, count, object)) return error;
  if ((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->retain(count);
  graph->references().adopt(object, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  std::shared_ptr<UserObject> object;
  if (const CUresult error = resolve_object(handle, count, object)) return error;
  const std::lock_guard lock(graphs_mutex());
  const auto graph = graphs().find(graph_handle);
  return graph && graph->references().release(object, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
