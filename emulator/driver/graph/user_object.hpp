// User objects: what a program wants kept as long as graphs use it. The destructor is called by a thread of its own,
// so never under a lock of the driver, once nobody holds a reference.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "api.hpp"
#include "handle_table.hpp"

namespace aiocuda::emulator::graph {

class UserObject {
 public:
  UserObject(CUhostFn destroy, void* data, std::uint64_t references)
      : destroy_(destroy), data_(data), references_(references) {}

  void retain(std::uint64_t count) noexcept { references_.fetch_add(count); }
  // False, and nothing is released, where there are fewer.
  bool release(std::uint64_t count);

 private:
  const CUhostFn destroy_;
  void* const data_;
  std::atomic<std::uint64_t> references_;
};

using UserObjectTable = HandleTable<UserObject, CUuserObject>;
UserObjectTable& user_objects();

// The references that a graph or an executable holds, and gives back at its end. A copy has as many of its own.
class UserObjectReferences {
 public:
  UserObjectReferences() = default;
  UserObjectReferences(const UserObjectReferences& other);
  UserObjectReferences& operator=(const UserObjectReferences&) = delete;
  ~UserObjectReferences();

  // Takes over references that the caller has.
  void adopt(const std::shared_ptr<UserObject>& object, std::uint64_t count) { counts_[object] += count; }
  // Holds the other's, too.
  void add(const UserObjectReferences& other);
  // False, and nothing is released, where it holds fewer.
  bool release(const std::shared_ptr<UserObject>& object, std::uint64_t count);

 private:
  std::map<std::shared_ptr<UserObject>, std::uint64_t> counts_;
};

}  // namespace aiocuda::emulator::graph
