// The checks within the launch of a kernel, as its code, compiled for checking, tells of each access and each meeting
// of threads. One for each launch; what it knows of the block that runs is the calling thread's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "abi/module_abi.hpp"
#include "checking/image_facts.hpp"
#include "checking/known_memory.hpp"
#include "checking/shadow.hpp"
#include "checking/shared_memory.hpp"
#include "settings.hpp"

namespace aiocuda::emulator::checking {

class LaunchChecker {
 public:
  LaunchChecker(const std::string& kernel, std::shared_ptr<const ImageFacts> facts, std::uintptr_t image,
                std::shared_ptr<const MemoryList> memory);

  // The calling thread runs blocks of this launch, until it enters another or leaves. Left out after a fault.
  void enter();
  static void leave();
  // All blocks of the launch wait for each other, the last one is here.
  void met_grid();

  const std::string& kernel() const noexcept { return kernel_; }
  const ImageFacts& facts() const noexcept { return *facts_; }
  std::uintptr_t image() const noexcept { return image_; }
  const MemoryList& memory() const noexcept { return *memory_; }
  GlobalShadow& shadow() noexcept { return shadow_; }
  Releases& releases() noexcept { return releases_; }
  ClusterMemory& cluster(std::uint64_t number);

 private:
  const std::string kernel_;
  const std::shared_ptr<const ImageFacts> facts_;
  const std::uintptr_t image_;
  const std::shared_ptr<const MemoryList> memory_;
  GlobalShadow shadow_;
  Releases releases_;
  std::mutex clusters_mutex_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ClusterMemory>> clusters_;
};

// The functions behind the services of that name.
void begin_checked_range(const abi::CheckedRange* range);
void check_access(const void* address, std::uint64_t bytes, abi::AccessKind kind, const void* code);
void note_meeting(abi::Meeting meeting, std::uint32_t warp, std::uint32_t lanes);
void report_meeting(std::uint32_t thread, std::int32_t line, const char* message);
void report_misaligned(const void* address, std::uint64_t bytes, abi::AccessKind kind, const void* code);

}  // namespace aiocuda::emulator::checking
