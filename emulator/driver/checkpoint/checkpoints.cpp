// See checkpoints.hpp. The functions of the API ask about any process, so they need no driver that was initialised in
// this one.
#include "checkpoint/checkpoints.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/process_page.hpp"
#include "context.hpp"
#include "device.hpp"
#include "stream.hpp"
#include "thread.hpp"

namespace aiocuda::emulator::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds one_day{24 * 60 * 60 * 1000};

std::atomic<bool> is_checkpointed{false};

class Service {
 public:
  explicit Service(std::unique_ptr<ProcessPage> page) : page_(std::move(page)) {}

  void run() {
    page_->set_thread(::gettid());
    while (true) page_->answer(carry_out(page_->wait_for_order()));
  }

 private:
  CUresult carry_out(const Order& order) {
    switch (order.kind) {
      case Order::Kind::lock:
        return lock(order.timeout_ms);
      case Order::Kind::checkpoint:
        if (page_->state() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
        // Calls that had begun before the lock may have submitted more.
        drain(one_day);
        is_checkpointed.store(true);
        return enter(CU_PROCESS_STATE_CHECKPOINTED);
      case Order::Kind::restore:
        if (page_->state() != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
        if (order.pair_count != 0 && !migrate({order.pairs.data(), order.pair_count})) return CUDA_ERROR_INVALID_VALUE;
        is_checkpointed.store(false);
        return enter(CU_PROCESS_STATE_LOCKED);
      case Order::Kind::unlock:
        if (page_->state() != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
        closed_.reset();
        return enter(CU_PROCESS_STATE_RUNNING);
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

  CUresult enter(CUprocessState state) noexcept {
    page_->set_state(state);
    return CUDA_SUCCESS;
  }

  CUresult lock(unsigned timeout_ms) {
    if (page_->state() != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
    closed_.emplace(gate);
    if (drain(timeout_ms == 0 ? one_day : milliseconds{timeout_ms})) return enter(CU_PROCESS_STATE_LOCKED);
    closed_.reset();
    return CUDA_ERROR_NOT_READY;
  }

  // Waits until no stream has any work left; gives up after the time.
  static bool drain(milliseconds patience) {
    const Clock::time_point end = Clock::now() + patience;
    for (const auto& context : contexts().find_if([](const Context&) { return true; })) {
      for (const auto& stream : context->streams()) {
        const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
        if (!stream->drain(std::max(left, milliseconds{0}))) return false;
      }
    }
    return true;
  }

  // Every device that has a context must be in a pair, and no two may become one.
  static bool migrate(std::span<const DevicePair> pairs) {
    std::vector<int> onto;
    for (CUdevice device = 0; device < device_count(); ++device) {
      const CUuuid from = device_uuid(device);
      const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const DevicePair& pair) {
        return std::memcmp(pair.from.bytes, from.bytes, sizeof from.bytes) == 0;
      });
      const bool is_used =
          !contexts().find_if([&](const Context& context) { return context.device() == device; }).empty();
      if (found == pairs.end() && is_used) return false;
      onto.push_back(found == pairs.end() ? hardware_of(device) : hardware_with_uuid(found->onto));
    }
    return move_to_hardware(onto);
  }

  const std::unique_ptr<ProcessPage> page_;
  std::optional<Gate::Closed> closed_;
};

// The arguments are a reserve of bytes that must be zero, behind what they have.
bool are_zero(const void* arguments, std::size_t from, std::size_t bytes) {
  const char* const begin = static_cast<const char*>(arguments);
  return std::all_of(begin + from, begin + bytes, [](char byte) { return byte == 0; });
}

CUresult give(int process, const Order& order) {
  std::unique_ptr<ProcessPage> page;
  if (const CUresult error = ProcessPage::open(process, page)) return error;
  return page->give(order);
}

}  // namespace

bool has_left_devices() noexcept { return is_checkpointed.load(); }

void begin_service() noexcept {
  std::unique_ptr<ProcessPage> page = ProcessPage::make();
  if (!page) return;
  try {
    start_thread("cuda-restore", [service = std::make_unique<Service>(std::move(page))] { service->run(); });
  } catch (const std::system_error&) {
    // The page is gone with what was to be the thread's, so nobody finds it.
  }
}

}  // namespace aiocuda::emulator::checkpoint

using namespace aiocuda::emulator;
using checkpoint::Order;
using checkpoint::ProcessPage;

CUresult cuCheckpointProcessGetRestoreThreadId(int process, int* thread) {
  if (thread == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<ProcessPage> page;
  if (const CUresult error = ProcessPage::open(process, page)) return error;
  *thread = page->thread();
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetState(int process, CUprocessState* state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<ProcessPage> page;
  if (const CUresult error = ProcessPage::open(process, page)) return error;
  *state = page->state();
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int process, CUcheckpointLockArgs* arguments) {
  Order order{.kind = Order::Kind::lock};
  if (arguments != nullptr) {
    if (!checkpoint::are_zero(arguments, sizeof(unsigned), sizeof *arguments)) return CUDA_ERROR_INVALID_VALUE;
    order.timeout_ms = arguments->timeoutMs;
  }
  return checkpoint::give(process, order);
}

CUresult cuCheckpointProcessCheckpoint(int process, CUcheckpointCheckpointArgs* arguments) {
  if (arguments != nullptr && !checkpoint::are_zero(arguments, 0, sizeof *arguments)) return CUDA_ERROR_INVALID_VALUE;
  return checkpoint::give(process, {.kind = Order::Kind::checkpoint});
}

CUresult cuCheckpointProcessRestore(int process, CUcheckpointRestoreArgs* arguments) {
  // Of CUDA 13.0; later versions have more in the reserve. Older headers do not name these members.
  struct Given {
    const checkpoint::DevicePair* pairs;
    unsigned pair_count;
  } given{};
  static_assert(sizeof *arguments >= sizeof given);
  Order order{.kind = Order::Kind::restore};
  if (arguments != nullptr) {
    std::memcpy(&given, arguments, sizeof given.pairs + sizeof given.pair_count);
    if (!checkpoint::are_zero(arguments, sizeof given.pairs + sizeof given.pair_count, sizeof *arguments))
      return CUDA_ERROR_INVALID_VALUE;
    if (given.pair_count > order.pairs.size() || (given.pair_count > 0 && given.pairs == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    order.pair_count = given.pair_count;
    std::copy_n(given.pairs, given.pair_count, order.pairs.begin());
  }
  return checkpoint::give(process, order);
}

CUresult cuCheckpointProcessUnlock(int process, CUcheckpointUnlockArgs* arguments) {
  if (arguments != nullptr && !checkpoint::are_zero(arguments, 0, sizeof *arguments)) return CUDA_ERROR_INVALID_VALUE;
  return checkpoint::give(process, {.kind = Order::Kind::unlock});
}
