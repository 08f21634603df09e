// Green contexts: a part of a device's resources, as programs are told of it. Always: a green context's streams,
// events and memory are the primary context's; its CUcontext is one more name of that one, by which it is told apart.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "context.hpp"
#include "device_resource.hpp"
#include "handle_table.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {

class GreenContext {
 public:
  GreenContext(std::shared_ptr<Context> primary, const DeviceResources& resources)
      : primary_(std::move(primary)), resources_(resources), id_(next_id()) {}

  Context& primary() const noexcept { return *primary_; }
  const std::shared_ptr<Context>& shared_primary() const noexcept { return primary_; }
  const DeviceResources& resources() const noexcept { return resources_; }
  std::uint64_t id() const noexcept { return id_; }
  CUgreenCtx handle() const noexcept { return reinterpret_cast<CUgreenCtx>(const_cast<GreenContext*>(this)); }
  // Another address, so that no handle is both.
  CUcontext context_handle() const noexcept {
    return reinterpret_cast<CUcontext>(const_cast<std::shared_ptr<Context>*>(&primary_) + 1);
  }

  void add_stream(const std::shared_ptr<Stream>& stream);
  std::vector<std::shared_ptr<Stream>> streams() const;
  bool has(const Stream& stream) const;

  // Its streams finish what they have and take nothing more.
  void end();
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  const std::shared_ptr<Context> primary_;
  const DeviceResources resources_;
  const std::uint64_t id_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Stream>> streams_;
};

using GreenContextTable = HandleTable<GreenContext, CUgreenCtx>;
GreenContextTable& green_contexts();

// The one that a CUcontext is a name of, ended or not; null where it is none's.
std::shared_ptr<GreenContext> green_context_of(CUcontext handle);
// The one that a stream was made in; null where it was made in none.
std::shared_ptr<GreenContext> green_context_of(const Stream& stream);

// Beside each entry of context_stack(): the green context that it was made current as, or null.
std::vector<std::shared_ptr<GreenContext>>& green_context_stack();
std::shared_ptr<GreenContext> current_green_context();

}  // namespace aiocuda::emulator
