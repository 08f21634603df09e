// The page that a process shows to those that checkpoint it, itself included: its state, and room for one order at a
// time.
// It is a page of a file without a name (memfd) that the process keeps open, so others find it in /proc/<pid>/fd.
// Always: who gives an order holds the page's lock, which the system frees if he ends; one order is carried out at a
// time, by the process's own thread.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "api.hpp"
#include "memory/shared_file.hpp"
#include "process_identity.hpp"

namespace aiocuda::emulator::checkpoint {

struct DevicePair {
  CUuuid from, onto;
};

struct Order {
  enum class Kind : std::uint32_t { lock, checkpoint, restore, unlock };
  Kind kind = Kind::lock;
  std::uint32_t timeout_ms = 0;  // 0: none
  std::uint32_t pair_count = 0;
  std::array<DevicePair, 64> pairs{};
};

class ProcessPage {
 public:
  // This process's; null where the system has no memory to share.
  static std::unique_ptr<ProcessPage> make();
  // CUDA_ERROR_INVALID_VALUE: there is no such process. NOT_INITIALIZED: it has no driver. NOT_SUPPORTED: it is another
  // user's.
  static CUresult open(int process, std::unique_ptr<ProcessPage>& page);
  ~ProcessPage();
  ProcessPage(const ProcessPage&) = delete;
  ProcessPage& operator=(const ProcessPage&) = delete;

  CUprocessState state() const noexcept;
  int thread() const noexcept;  // that carries out the orders
  // Waits until the order is carried out; answers how it went.
  CUresult give(const Order& order);

  // For the thread that carries them out, the only caller of these:
  void set_thread(int thread) noexcept;
  void set_state(CUprocessState state) noexcept;
  Order wait_for_order() const noexcept;
  void answer(CUresult result) noexcept;

 private:
  struct Page;
  ProcessPage(memory::Descriptor descriptor, Page& page) : descriptor_(std::move(descriptor)), page_(page) {}
  static std::unique_ptr<ProcessPage> map(memory::Descriptor descriptor);
  bool is_of(int process) const noexcept;
  CUresult wait_for_answer() const noexcept;

  const memory::Descriptor descriptor_;
  Page& page_;
};

}  // namespace aiocuda::emulator::checkpoint
