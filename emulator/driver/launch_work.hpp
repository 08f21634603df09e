// A launch of a kernel: its shape, its arguments, what is checked of them, and the work that runs the blocks.
// Always: the arguments are copies, and the function, and so its code, is held as long as the work is.
#pragma once
#include <array>
#include <cstddef>
#include <memory>

#include "block_pool.hpp"
#include "checking/launch_checker.hpp"
#include "checking/recorder.hpp"
#include "module.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {
namespace graph {
class Environment;
}

struct LaunchShape {
  abi::Dim3 grid;
  abi::Dim3 block;
  std::size_t dynamic_shared_bytes;
  bool cooperative = false;
  abi::Dim3 cluster{};  // all 0: as the function says, else none
};

// INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, INVALID_CLUSTER_SIZE or COOPERATIVE_LAUNCH_TOO_LARGE where the function
// cannot be launched so.
CUresult check_shape(const Function& function, const LaunchShape& shape);

// CLUSTER_DIMENSION of a launch. INVALID_VALUE where an extent is 0.
CUresult read_cluster(const CUlaunchAttributeValue& value, abi::Dim3& cluster);
// The clusters of a launch that asks for `asked`; all 0: none.
inline abi::Dim3 cluster_of(const Function& function, const abi::Dim3& asked) noexcept {
  return asked.x != 0 ? asked : function.attributes().required_cluster();
}
// INVALID_CLUSTER_SIZE: larger than allowed, or other than the function's own.
CUresult check_cluster(const Function& function, const abi::Dim3& asked);

// The packed arguments of a launch and the pointers to them. Small ones, nearly all, need no memory
// of their own.
class Arguments {
 public:
  explicit Arguments(const KernelDescription& kernel);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::byte* values() noexcept { return values_; }
  const std::byte* values() const noexcept { return values_; }
  void* const* pointers() const noexcept { return pointers_; }

 private:
  static constexpr std::size_t alignment = 64;  // of the vector types a parameter may hold
  std::byte* values_;
  void** pointers_;
  std::unique_ptr<std::byte[]> large_;
  std::array<std::byte, 384> small_;
};

// Reads the arguments as cuLaunchKernel is given them: as pointers, or as a packed buffer among the extra options.
CUresult copy_arguments(const KernelDescription& kernel, void** parameters, void** extra, std::byte* values);

// One thread writes it and another one reads it, so what both touch is on few cache lines, at its beginning.
class alignas(64) LaunchWork final : public Work, private Pieces {
 public:
  LaunchWork(std::shared_ptr<Function> function, const LaunchShape& shape, int priority);
  static void* operator new(std::size_t bytes);
  static void operator delete(void* memory) noexcept;

  Arguments& arguments() noexcept { return arguments_; }

  void run() override;
  void set_priority(int priority) noexcept override { priority_ = priority; }
  std::string text() const override { return "kernel " + function_->description().name; }
  checking::Accesses accesses() override { return recording_ ? recording_->take() : checking::Accesses{}; }

 private:
  Fault run_blocks();
  void run(std::uint64_t first, std::uint64_t last) override;
  void all_met() override {
    if (checker_) checker_->met_grid();
  }

  const std::shared_ptr<Function> function_;
  int priority_;
  const bool cooperative_;
  abi::Launch launch_;
  graph::Environment* environment_ = nullptr;             // of the graph that runs this; null: of none
  const std::unique_ptr<checking::Recording> recording_;  // null where races are not looked for
  std::unique_ptr<checking::LaunchChecker> checker_;      // of each run; null where nothing is checked
  Arguments arguments_;
};

}  // namespace aiocuda::emulator
