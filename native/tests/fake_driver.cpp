// The answers of the driver for tests: see fake_driver.hpp.
#include "fake_driver.hpp"

#include <tuple>
#include <type_traits>

namespace aiocuda::driver::tests {
namespace {

bool is_refusable(Function function) {
  switch (function) {
    case Function::cuCtxGetCurrent:
    case Function::cuCtxSetCurrent:
    case Function::cuThreadExchangeStreamCaptureMode:
    case Function::cuStreamIsCapturing:
      return false;
    default:
      return true;
  }
}

// Which argument the stream is that the function gives work to; -1: it gives none.
constexpr int stream_of(Function function) {
  switch (function) {
    case Function::cuLaunchKernel:
      return 8;
    case Function::cuMemcpyAsync:
    case Function::cuMemsetD8Async:
    case Function::cuMemsetD16Async:
    case Function::cuMemsetD32Async:
      return 3;
    case Function::cuMemsetD2D8Async:
    case Function::cuMemsetD2D16Async:
    case Function::cuMemsetD2D32Async:
      return 5;
    case Function::cuMemcpy2DAsync:
    case Function::cuGraphLaunch:
      return 1;
    default:
      return -1;
  }
}

template <class T>
std::uint64_t number_of(T argument) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<std::uint64_t>(argument);
  else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>)
    return static_cast<std::uint64_t>(argument);
  else
    return 0;
}

}  // namespace

// As cuda.h calls it before it says which version of it that is.
std::string name_of(Function function) {
#define AIOCUDA_QUOTE_(x) #x
#define AIOCUDA_QUOTE(x) AIOCUDA_QUOTE_(x)
#define F(name) AIOCUDA_QUOTE(name),
  static const char* const names[] = {AIOCUDA_DRIVER_FUNCTIONS(F)};
#undef F
  const std::string name = names[static_cast<std::size_t>(function)];
  return name.substr(0, name.rfind("_v"));
}

template <Function function, class... Arguments>
struct FakeDriver::Entry<function, CUresult (*)(Arguments...)> {
  static CUresult call(Arguments... arguments) { return current()->template answer<function>(arguments...); }
};

template <Function function, class... Arguments>
CUresult FakeDriver::answer(Arguments... arguments) {
  std::unique_lock lock(mutex_);
  if (const auto before = before_call_) {
    lock.unlock();
    (*before)(function);
    lock.lock();
  }
  ++counts_[index(function)];
  const std::size_t nth = ++made_[index(function)];
  if (is_refusable(function)) {
    calls_.push_back({function, {number_of(arguments)...}});
    if (++refusable_calls_ == refused_at_) {
      refused_function_ = name_of(function);
      return refused_with_;
    }
  }
  for (const Refused& each : refusals_)
    if (each.function == function && each.from <= nth && nth < each.to) return each.answer;
  const auto given = std::make_tuple(arguments...);
  return perform<function>(given);
}

template <Function f, class Given>
CUresult FakeDriver::perform(const Given& given) {
  auto argument = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) { return std::get<i>(given); };
  constexpr std::integral_constant<std::size_t, 0> first;
  [[maybe_unused]] constexpr std::integral_constant<std::size_t, 1> second;
  [[maybe_unused]] constexpr std::integral_constant<std::size_t, 2> third;
  if constexpr (stream_of(f) >= 0) {
    const CUstream stream = argument(std::integral_constant<std::size_t, static_cast<std::size_t>(stream_of(f))>());
    if (const CUresult refused = give_work(stream, f)) return refused;
    if constexpr (f == Function::cuGraphLaunch) {
      require_alive(argument(first), "cuGraphLaunch");
      work_.back().arguments.clear();
      for (const auto& [node, address] : filled_[argument(first)]) work_.back().arguments.push_back(address);
    }
  } else if constexpr (f == Function::cuLaunchKernelEx) {
    return give_work(argument(first)->hStream, f);
  } else if constexpr (f == Function::cuFuncGetAttribute) {
    *argument(first) = 0;
  } else if constexpr (f == Function::cuGraphAddKernelNode || f == Function::cuGraphAddMemcpyNode ||
                       f == Function::cuGraphAddMemsetNode || f == Function::cuGraphAddChildGraphNode ||
                       f == Function::cuGraphAddEmptyNode) {
    require_alive(argument(second), "a node");
    *argument(first) = reinterpret_cast<CUgraphNode>(last_handle_ += 16);  // it goes with its graph
    if constexpr (f == Function::cuGraphAddMemsetNode)
      filled_[argument(second)][*argument(first)] = argument(std::integral_constant<std::size_t, 4>())->dst;
  } else if constexpr (f == Function::cuGraphExecMemsetNodeSetParams) {
    require_alive(argument(first), "parameters");
    filled_[argument(first)][argument(second)] = argument(third)->dst;
  } else if constexpr (f == Function::cuCtxGetCurrent) {
    *argument(first) = context_;
  } else if constexpr (f == Function::cuCtxSetCurrent) {
    context_ = argument(first);
  } else if constexpr (f == Function::cuStreamCreateWithPriority || f == Function::cuEventCreate ||
                       f == Function::cuGraphCreate || f == Function::cuGraphInstantiateWithFlags) {
    make(argument(first), f);
    if constexpr (f == Function::cuGraphInstantiateWithFlags) filled_[*argument(first)] = filled_[argument(second)];
  } else if constexpr (f == Function::cuMemAllocFromPoolAsync) {
    if (const CUresult refused = give_work(argument(std::integral_constant<std::size_t, 3>()), f)) return refused;
    *argument(first) = make_address(argument(second), f);
    work_.back().arguments = {*argument(first)};
  } else if constexpr (f == Function::cuMemAlloc || f == Function::cuMemAllocManaged) {
    *argument(first) = make_address(argument(second), f);
  } else if constexpr (f == Function::cuIpcOpenMemHandle) {
    *argument(first) = 1ull << 50;  // one address, however often it is opened
  } else if constexpr (f == Function::cuMemHostAlloc) {
    *argument(first) = make_host(argument(second));
  } else if constexpr (f == Function::cuMemFreeHost) {
    end(argument(first), "cuMemFreeHost");
    host_.erase(reinterpret_cast<std::uint64_t>(argument(first)));
  } else if constexpr (f == Function::cuMemFree) {
    end(reinterpret_cast<void*>(argument(first)), "cuMemFree");
  } else if constexpr (f == Function::cuMemFreeAsync) {
    if (const CUresult refused = give_work(argument(second), f)) return refused;
    end(reinterpret_cast<void*>(argument(first)), "cuMemFreeAsync");
  } else if constexpr (f == Function::cuStreamDestroy) {
    end(argument(first), "cuStreamDestroy");
  } else if constexpr (f == Function::cuEventDestroy || f == Function::cuGraphDestroy ||
                       f == Function::cuGraphExecDestroy) {
    end(argument(first), "an event's or a graph's end");
  } else if constexpr (f == Function::cuModuleGetLoadingMode) {
    *argument(first) = loads_eagerly ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  } else if constexpr (f == Function::cuStreamIsCapturing) {
    *argument(second) =
        captured_.contains(argument(first)) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  } else if constexpr (f == Function::cuStreamGetId) {
    const auto number = stream_numbers.find(argument(first));
    *argument(second) = number == stream_numbers.end() ? number_of(argument(first)) : number->second;
  } else if constexpr (f == Function::cuPointerGetAttribute) {
    const auto next = allocations.upper_bound(argument(third));
    if (next == allocations.begin()) return CUDA_ERROR_INVALID_VALUE;
    const auto& [start, size_bytes] = *std::prev(next);
    if (argument(third) >= start + size_bytes) return CUDA_ERROR_INVALID_VALUE;
    const bool asks_start = argument(second) == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    *static_cast<std::uint64_t*>(argument(first)) = asks_start ? start : size_bytes;
  } else if constexpr (f == Function::cuStreamQuery || f == Function::cuStreamSynchronize) {
    if (const CUresult refused = use_stream(argument(first), "cuStreamQuery")) return refused;
    const Stream& stream = streams_[argument(first)];
    return stream.passed < stream.submitted ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  } else if constexpr (f == Function::cuEventRecord) {
    if (const CUresult refused = use_stream(argument(second), "cuEventRecord")) return refused;
    require_alive(argument(first), "cuEventRecord");
    const std::uint64_t count = advance(argument(second));
    events_[argument(first)] = {argument(second), count, streams_[argument(second)].after};
  } else if constexpr (f == Function::cuEventQuery) {
    require_alive(argument(first), "cuEventQuery");
    const auto event = events_.find(argument(first));
    if (event == events_.end()) return CUDA_SUCCESS;
    if (const auto broken = broken_.find(event->second.stream); broken != broken_.end()) return broken->second;
    return streams_[event->second.stream].passed < event->second.count ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  } else if constexpr (f == Function::cuStreamWaitEvent) {
    if (const CUresult refused = use_stream(argument(first), "cuStreamWaitEvent")) return refused;
    require_alive(argument(second), "cuStreamWaitEvent");
    const Event& event = events_[argument(second)];
    waits_.emplace(argument(first), event.stream);
    Stream& stream = streams_[argument(first)];
    auto pass = [&](CUstream other, std::uint64_t count) {
      std::uint64_t& known = stream.after[other];
      known = std::max(known, count);
    };
    if (event.stream) pass(event.stream, event.count);
    for (const auto& [other, count] : event.after) pass(other, count);
    advance(argument(first));
  } else if constexpr (f == Function::cuStreamWriteValue32) {
    if (const CUresult refused = use_stream(argument(first), "cuStreamWriteValue32")) return refused;
    advance(argument(first));
    auto* word = reinterpret_cast<std::uint32_t*>(argument(second));
    Stream& stream = streams_[argument(first)];
    if (stream.is_held)
      stream.writes.emplace_back(word, argument(third));
    else
      __atomic_store_n(word, argument(third), __ATOMIC_RELEASE);
  } else if constexpr (f == Function::cuDeviceGet) {
    *argument(first) = argument(second);
  } else if constexpr (f == Function::cuDeviceCanAccessPeer) {
    *argument(first) = is_peer_possible;
  } else if constexpr (f == Function::cuGraphGetNodes) {
    *argument(third) = 0;
  }
  return CUDA_SUCCESS;
}

template <class Handle>
void FakeDriver::make(Handle* handle, Function maker) {
  *handle = reinterpret_cast<Handle>(last_handle_ += 16);
  alive_.emplace(last_handle_, maker);
}
std::uint64_t FakeDriver::make_address(std::uint64_t size_bytes, Function maker) {
  constexpr std::uint64_t alignment = 2 << 20;
  const std::uint64_t address = last_address_;
  last_address_ += (size_bytes / alignment + 1) * alignment;
  alive_.emplace(address, maker);
  return address;
}
// Small memory is there, as the host reads and writes it.
void* FakeDriver::make_host(std::uint64_t size_bytes) {
  if (size_bytes > (1 << 20)) return reinterpret_cast<void*>(make_address(size_bytes, Function::cuMemHostAlloc));
  auto memory = std::make_unique<std::uint64_t[]>(size_bytes / 8 + 1);
  void* address = memory.get();
  host_.emplace(reinterpret_cast<std::uint64_t>(address), std::move(memory));
  alive_.emplace(reinterpret_cast<std::uint64_t>(address), Function::cuMemHostAlloc);
  return address;
}
template <class Handle>
void FakeDriver::end(Handle handle, const char* function) {
  if (!alive_.erase(reinterpret_cast<std::uint64_t>(handle)))
    misuses_.push_back(std::string(function) + " of what is not there");
}
template <class Handle>
void FakeDriver::require_alive(Handle handle, const char* function) {
  if (!alive_.contains(reinterpret_cast<std::uint64_t>(handle)))
    misuses_.push_back(std::string(function) + " with a handle that is not there");
}
CUresult FakeDriver::use_stream(CUstream stream, const char* function) {
  if (reinterpret_cast<std::uint64_t>(stream) >= first_handle)
    require_alive(stream, function);  // else it is the test's own
  const auto broken = broken_.find(stream);
  return broken == broken_.end() ? CUDA_SUCCESS : broken->second;
}
std::uint64_t FakeDriver::advance(CUstream stream) {
  Stream& of = streams_[stream];
  ++of.submitted;
  if (!of.is_held) of.passed = of.submitted;
  return of.submitted;
}

CUresult FakeDriver::give_work(CUstream stream, Function function) {
  if (const CUresult refused = use_stream(stream, "work")) return refused;
  const std::uint64_t count = advance(stream);
  work_.push_back({function, calls_.back().arguments, stream, count, streams_[stream].after});
  return CUDA_SUCCESS;
}

Table FakeDriver::table() const {
  Table table;
#define F(name) table.name = Entry<Function::name, decltype(table.name)>::call;
  AIOCUDA_DRIVER_FUNCTIONS(F)
#undef F
  return table;
}

}  // namespace aiocuda::driver::tests
