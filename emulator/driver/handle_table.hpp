// The live handles of one kind. A handle is looked up here before it is used, so a destroyed or
// made-up one is found out by its value and never dereferenced. Tables live until the process ends.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace aiocuda::emulator {

template <typename Object, typename Handle>
class HandleTable {
 public:
  static Handle handle_of(const Object& object) noexcept {
    return reinterpret_cast<Handle>(const_cast<Object*>(&object));
  }

  Handle add(std::shared_ptr<Object> object) {
    const Handle handle = handle_of(*object);
    return add(handle, std::move(object));
  }

  // Under a handle of the caller's choice, which no other object has.
  Handle add(Handle handle, std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    objects_.insert_or_assign(handle, std::move(object));
    return handle;
  }

  // Null when the handle is none of the live ones.
  std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Ends the handle's life; what it stood for is returned, or null.
  std::shared_ptr<Object> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Ends the life of all handles whose object the predicate picks, and returns the objects.
  template <typename Predicate>
  std::vector<std::shared_ptr<Object>> take_if(Predicate&& predicate) {
    std::vector<std::shared_ptr<Object>> taken;
    const std::lock_guard lock(mutex_);
    for (auto each = objects_.begin(); each != objects_.end();) {
      if (predicate(*each->second)) {
        taken.push_back(std::move(each->second));
        each = objects_.erase(each);
      } else {
        ++each;
      }
    }
    return taken;
  }

  template <typename Predicate>
  std::vector<std::shared_ptr<Object>> find_if(Predicate&& predicate) const {
    std::vector<std::shared_ptr<Object>> found;
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : objects_) {
      if (predicate(*object)) found.push_back(object);
    }
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Object>> objects_;
};

}  // namespace aiocuda::emulator
