// NCCL's functions of communicators, groups, operators and memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <unordered_map>

#include "group.hpp"
#include "handles.hpp"

using namespace aiocuda::emulator::nccl;

#define NCCL_API extern "C" [[gnu::visibility("default")]]

namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<std::uintptr_t, std::shared_ptr<Communicator>> communicators;
  std::uintptr_t last = 0x1000;  // handles look like addresses, and none is used again
};

Table& table() {
  static Table* const all = new Table;
  return *all;
}

ncclComm_t add_handle(std::shared_ptr<Communicator> communicator) {
  const std::lock_guard lock(table().mutex);
  table().last += 64;
  table().communicators.emplace(table().last, std::move(communicator));
  return reinterpret_cast<ncclComm_t>(table().last);
}

std::shared_ptr<Communicator> find(ncclComm_t handle) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().communicators.find(reinterpret_cast<std::uintptr_t>(handle));
  return found == table().communicators.end() ? nullptr : found->second;
}

std::shared_ptr<Communicator> take(ncclComm_t handle) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().communicators.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == table().communicators.end()) throw Refused{ncclInvalidArgument, "there is no such communicator"};
  std::shared_ptr<Communicator> communicator = std::move(found->second);
  table().communicators.erase(found);
  return communicator;
}

template <typename Function>
ncclResult_t answer(Function function) {
  try {
    return function();
  } catch (const Refused& refused) {
    return refuse(refused);
  }
}

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS) throw Refused{ncclUnhandledCudaError, std::string(call) + " fails"};
}

// The device that the CUDA runtime would call current.
CUdevice current_device() {
  CUdevice device = 0;
  if (cuCtxGetDevice(&device) == CUDA_SUCCESS) return device;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  return device;
}

// Its primary context is current in the thread, and kept until the process ends, as the CUDA runtime keeps it.
class OnDevice {
 public:
  explicit OnDevice(CUdevice device) {
    CUcontext context = nullptr;
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  }
  ~OnDevice() {
    CUcontext popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

std::string name_of(const char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  std::string name = "/aiocuda-nccl-";
  for (std::size_t each = 0; each < count; ++each) {
    const auto byte = static_cast<unsigned char>(bytes[each]);
    name += {digits[byte >> 4], digits[byte & 15]};
  }
  return name;
}

// The first 16 bytes are random; the others are not used.
std::string name_of(const ncclUniqueId& id) { return name_of(id.internal, 16); }

bool chosen(int given, const char* name, bool otherwise) {
  if (given == undefined_number) return otherwise;
  if (given == 0 || given == 1) return given == 1;
  throw Refused{ncclInvalidArgument, std::string(name) + " is " + std::to_string(given) + ", and may be 0 or 1"};
}

Options options_of(const ncclConfig_t* config) {
  if (config == nullptr) return {};
  if (config->magic != config_magic || config->size < sizeof(ncclConfig_t)) {
    throw Refused{ncclInvalidArgument, "the configuration was not made with NCCL_CONFIG_INITIALIZER"};
  }
  return {.blocks = chosen(config->blocking, "blocking", true),
          .shares = chosen(config->splitShare, "splitShare", false)};
}

// As NVIDIA's NCCL: the limit becomes what its kernels need, even if that is less than it was.
void set_stack_if_asked(CUdevice device) {
  constexpr std::size_t stack_bytes = 512;
  const char* asked = std::getenv("NCCL_SET_STACK_SIZE");
  if (asked == nullptr || std::string_view(asked) != "1") return;
  const OnDevice current(device);
  check(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack_bytes), "cuCtxSetLimit");
}

void join(ncclComm_t* handle, int ranks, const std::string& name, int rank, CUdevice device, Options options) {
  if (handle == nullptr) throw Refused{ncclInvalidArgument, "there is no place for the communicator"};
  if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks) {
    throw Refused{ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                                           ": ranks are counted from 0, and there are at most " +
                                           std::to_string(most_ranks)};
  }
  set_stack_if_asked(device);
  const auto communicator = std::make_shared<Communicator>(name, ranks, rank, device, options);
  *handle = add_handle(communicator);
  add_wait(communicator, [communicator = communicator.get()] { return communicator->join(); });
}

// A communicator that could not be made has no handle.
ncclResult_t without_handle_unless_made(ncclResult_t result, ncclComm_t* handle) {
  if (result != ncclSuccess && result != ncclInProgress && handle != nullptr && *handle != nullptr) {
    answer([&] {
      take(*handle);
      return ncclSuccess;
    });
    *handle = nullptr;
  }
  return result;
}

ncclResult_t join_one(ncclComm_t* handle, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (handle != nullptr) *handle = nullptr;
  const ncclResult_t result =
      grouped([&] { join(handle, ranks, name_of(id), rank, current_device(), options_of(config)); });
  return without_handle_unless_made(result, handle);
}

ncclUniqueId new_id() {
  ncclUniqueId id{};
  std::random_device random;
  for (std::size_t each = 0; each < 16; ++each) id.internal[each] = static_cast<char>(random());
  return id;
}

// Which ranks of the parent are in the new communicator, in order. Waits for all of the parent's to say it.
std::vector<int> members(Communicator& parent, std::uint64_t split, int color) {
  Segment& segment = parent.segment();
  const auto missing = [&] {
    for (int rank = 0; rank < segment.ranks(); ++rank) {
      if (segment.part(rank).splits.load() < split) return rank;
    }
    return -1;
  };
  if (!parent.wait(missing, [] { return false; })) return {};
  std::vector<int> ranks;
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    if (segment.part(rank).color == color) ranks.push_back(rank);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int one, int other) { return segment.part(one).key < segment.part(other).key; });
  return ranks;
}

}  // namespace

namespace aiocuda::emulator::nccl {

std::shared_ptr<Communicator> known(ncclComm_t handle) {
  std::shared_ptr<Communicator> communicator = find(handle);
  if (!communicator) throw Refused{ncclInvalidArgument, "there is no such communicator; was it destroyed or aborted?"};
  return communicator;
}

std::shared_ptr<Communicator> usable(ncclComm_t handle) {
  std::shared_ptr<Communicator> communicator = known(handle);
  const ncclResult_t state = communicator->state();
  if (state == ncclInProgress) {
    throw Refused{ncclInvalidArgument,
                  "the communicator is not ready: ask ncclCommGetAsyncError until it is not ncclInProgress"};
  }
  if (state != ncclSuccess) throw Refused{state, "the communicator has failed: " + communicator->last_error()};
  return communicator;
}

}  // namespace aiocuda::emulator::nccl

NCCL_API ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = nccl_version;
  return ncclSuccess;
}

NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  constexpr std::array texts{"no error",
                             "unhandled cuda error",
                             "unhandled system error",
                             "internal error",
                             "invalid argument",
                             "invalid usage",
                             "remote process exited or there was a network error",
                             "NCCL operation in progress"};
  return result >= 0 && static_cast<std::size_t>(result) < texts.size() ? texts[static_cast<std::size_t>(result)]
                                                                        : "unknown result code";
}

NCCL_API const char* ncclGetLastError(ncclComm_t handle) {
  thread_local std::unique_ptr<std::string> text;
  const std::shared_ptr<Communicator> communicator = find(handle);
  text = std::make_unique<std::string>(communicator ? communicator->last_error() : std::string());
  if (text->empty()) *text = last_refusal();
  return text->c_str();
}

NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return refuse({ncclInvalidArgument, "there is no place for the id"});
  *id = new_id();
  return ncclSuccess;
}

NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank,
                                             ncclConfig_t* config) {
  return join_one(handle, ranks, id, rank, config);
}

NCCL_API ncclResult_t ncclCommInitRank(ncclComm_t* handle, int ranks, ncclUniqueId id, int rank) {
  return join_one(handle, ranks, id, rank, nullptr);
}

NCCL_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* handle, int ranks, int rank, int count, ncclUniqueId* ids,
                                               ncclConfig_t* config) {
  if (ids == nullptr || count < 1) return refuse({ncclInvalidArgument, "there is no id"});
  return join_one(handle, ranks, ids[0], rank, config);
}

NCCL_API ncclResult_t ncclCommInitAll(ncclComm_t* handles, int count, const int* devices) {
  if (handles == nullptr || count < 1) return refuse({ncclInvalidArgument, "there is no device"});
  std::fill(handles, handles + count, nullptr);
  const ncclUniqueId id = new_id();
  const ncclResult_t result = grouped([&] {
    int available = 0;
    check(cuInit(0), "cuInit");
    check(cuDeviceGetCount(&available), "cuDeviceGetCount");
    std::set<int> used;
    for (int rank = 0; rank < count; ++rank) {
      const int device = devices != nullptr ? devices[rank] : rank;
      if (device < 0 || device >= available || !used.insert(device).second) {
        throw Refused{ncclInvalidUsage, "device " + std::to_string(device) + " is given twice, or is not there"};
      }
    }
    for (int rank = 0; rank < count; ++rank) {
      join(handles + rank, count, name_of(id), rank, devices != nullptr ? devices[rank] : rank, {});
    }
  });
  for (int rank = 0; rank < count; ++rank) without_handle_unless_made(result, handles + rank);
  return result;
}

NCCL_API ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (made != nullptr) *made = nullptr;
  return grouped([&] {
    const std::shared_ptr<Communicator> parent = usable(handle);
    if (made == nullptr) throw Refused{ncclInvalidArgument, "there is no place for the communicator"};
    if (color < 0 && color != no_color) throw Refused{ncclInvalidArgument, "a colour is not below 0"};
    const Options options = config == nullptr ? parent->options() : options_of(config);
    set_stack_if_asked(parent->device());
    if (!options.blocks) throw Refused{ncclInvalidUsage, "the emulated NCCL splits off blocking communicators only"};
    const std::uint64_t split = ++parent->splits;
    RankPart& own = parent->segment().own();
    own.color = color;
    own.key = key;
    own.splits.store(split);
    parent->segment().ring();
    add_wait(parent, [parent = parent.get(), split, color, made, options]() -> ncclResult_t {
      const std::vector<int> ranks = members(*parent, split, color);
      if (parent->is_aborted()) return ncclInvalidUsage;
      if (color == no_color) return ncclSuccess;
      const auto place = std::find(ranks.begin(), ranks.end(), parent->rank()) - ranks.begin();
      const std::string name = parent->name() + "-" + std::to_string(split) + "-" + std::to_string(color);
      const auto communicator = std::make_shared<Communicator>(name, static_cast<int>(ranks.size()),
                                                               static_cast<int>(place), parent->device(), options);
      parent->add_child(communicator);
      communicator->begin_progress();
      const ncclResult_t result = communicator->join();
      communicator->end_progress();
      if (result == ncclSuccess) {
        *made = add_handle(communicator);
      } else {
        parent->note(result, communicator->last_error());
      }
      return result;
    });
  });
}

NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return answer([&] {
    const std::shared_ptr<Communicator> communicator = usable(handle);
    if (communicator->blocks()) {
      communicator->wait_for_work();
      return ncclSuccess;
    }
    communicator->run_later([communicator = communicator.get()] { communicator->wait_for_work(); });
    return ncclInProgress;
  });
}

NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return answer([&] {
    take(handle)->leave();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return answer([&] {
    take(handle)->abort();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return answer([&] {
    if (error == nullptr) throw Refused{ncclInvalidArgument, "there is no place for the error"};
    *error = known(handle)->state();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommCount(ncclComm_t handle, int* count) {
  return answer([&] {
    *count = usable(handle)->ranks();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommCuDevice(ncclComm_t handle, int* device) {
  return answer([&] {
    *device = usable(handle)->device();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  return answer([&] {
    *rank = usable(handle)->rank();
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclGroupStart() { return start_group(); }
NCCL_API ncclResult_t ncclGroupEnd() { return end_group(); }

NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                               ncclScalarResidence_t residence, ncclComm_t handle) {
  return answer([&] {
    if (op == nullptr || scalar == nullptr || type < 0 || type >= ncclNumTypes) {
      throw Refused{ncclInvalidArgument, "an operator needs a place, a scalar and a type"};
    }
    if (residence != ncclScalarHostImmediate) {
      throw Refused{ncclInvalidUsage, "the emulated NCCL takes scalars of the host only"};
    }
    Operator made;
    made.multiplies = true;
    std::memcpy(&made.scalar, scalar, bytes_of(type));
    *op = static_cast<ncclRedOp_t>(usable(handle)->add_operator(made));
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  return answer([&] {
    if (!usable(handle)->remove_operator(op)) throw Refused{ncclInvalidArgument, "there is no such operator"};
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  return answer([&] {
    if (memory == nullptr || bytes == 0) throw Refused{ncclInvalidArgument, "memory needs a place and a size"};
    const OnDevice current(current_device());
    check(cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(memory), bytes), "cuMemAlloc");
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclMemFree(void* memory) {
  return answer([&] {
    if (memory == nullptr) return ncclSuccess;
    const OnDevice current(current_device());
    check(cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory)), "cuMemFree");
    return ncclSuccess;
  });
}

// Registered memory is used as any other.
NCCL_API ncclResult_t ncclCommRegister(ncclComm_t handle, void* memory, std::size_t, void** registered) {
  return answer([&] {
    usable(handle);
    if (memory == nullptr || registered == nullptr) throw Refused{ncclInvalidArgument, "there is no memory"};
    *registered = memory;
    return ncclSuccess;
  });
}

NCCL_API ncclResult_t ncclCommDeregister(ncclComm_t handle, void*) {
  return answer([&] {
    known(handle);
    return ncclSuccess;
  });
}
