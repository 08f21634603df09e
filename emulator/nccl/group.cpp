// See group.hpp.
#include "group.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace aiocuda::emulator::nccl {
namespace {

// The calls of a group to one communicator.
struct Calls {
  std::shared_ptr<Communicator> communicator;
  std::vector<Collective> collectives;
  std::vector<Message> messages;
  std::vector<CUstream> streams;  // each once, in the order of the calls
};

struct Wait {
  std::shared_ptr<Communicator> communicator;
  std::function<ncclResult_t()> function;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Calls> calls;
  std::vector<Wait> waits;

  Calls& of(const std::shared_ptr<Communicator>& communicator, CUstream stream) {
    auto found =
        std::find_if(calls.begin(), calls.end(), [&](const Calls& each) { return each.communicator == communicator; });
    if (found == calls.end()) found = calls.insert(calls.end(), {communicator, {}, {}, {}});
    auto& streams = found->streams;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    return *found;
  }
};

// On the heap: the loader has little room for the thread-local variables of a library that is loaded late.
struct Thread {
  Group group;
  std::string refusal;
};
Thread& this_thread() {
  thread_local const auto thread = std::make_unique<Thread>();
  return *thread;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw Refused{ncclUnhandledCudaError, std::string(call) + " answers " + (name != nullptr ? name : "an error")};
}

// The state of a piece of work in a stream: what one communicator is to do, or, in a graph, several.
struct Running {
  std::vector<Calls> calls;
  bool is_counted;  // among what a communicator waits for before it ends; work in graphs is not

  // They wait for each other, so each has a thread.
  void run(const abi::StreamWorkServices& services) const {
    std::vector<std::thread> others;
    for (std::size_t each = 1; each < calls.size(); ++each) {
      others.emplace_back([&, each] { run_one(calls[each], services); });
    }
    run_one(calls.front(), services);
    for (std::thread& each : others) each.join();
  }

 private:
  static void run_one(const Calls& of_one, const abi::StreamWorkServices& services) {
    for (const Collective& each : of_one.collectives) {
      if (!exchange(*of_one.communicator, each, services)) return;
    }
    if (!of_one.messages.empty()) exchange(*of_one.communicator, of_one.messages, services);
  }
};

std::string text_of(const Calls& calls) {
  std::string text = "NCCL:";
  for (const Collective& each : calls.collectives) {
    Description described{.kind = each.kind, .type = each.type, .op = each.op, .root = each.root, .count = each.count};
    std::string one = described.text();
    text += " " + one.substr(0, one.rfind(" (call"));
  }
  if (!calls.messages.empty()) text += " " + std::to_string(calls.messages.size()) + " sent or received";
  return text + " of rank " + std::to_string(calls.communicator->rank());
}

std::vector<abi::StreamWorkRange> ranges_of(const Calls& calls) {
  std::vector<abi::StreamWorkRange> ranges;
  const auto add_range = [&](const std::byte* at, std::size_t bytes, bool is_written) {
    if (bytes > 0) ranges.push_back({reinterpret_cast<std::uintptr_t>(at), bytes, is_written});
  };
  const Communicator& communicator = *calls.communicator;
  for (const Collective& each : calls.collectives) {
    const bool is_root = each.root == communicator.rank();
    const bool sends = is_root || (each.kind != Kind::broadcast && each.kind != Kind::scatter);
    const bool receives = is_root || (each.kind != Kind::reduce && each.kind != Kind::gather);
    if (sends) add_range(each.send, sent_bytes(communicator, each), false);
    if (receives) add_range(each.receive, received_bytes(communicator, each), true);
  }
  for (const Message& each : calls.messages) add_range(each.data, each.bytes, !each.is_sent);
  return ranges;
}

bool is_captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  check(cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// An event for one wait: the driver keeps what it needs of it.
void order(CUstream after, CUstream before) {
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  CUresult result = cuEventRecord(event, before);
  if (result == CUDA_SUCCESS) result = cuStreamWaitEvent(after, event, 0);
  cuEventDestroy_v2(event);
  check(result, "cuStreamWaitEvent");
}

class CurrentContext {
 public:
  explicit CurrentContext(CUstream stream) {
    CUcontext context = nullptr;
    check(cuStreamGetCtx(stream, &context), "cuStreamGetCtx");
    check(cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// Puts what communicators are to do on the first stream, as one piece of work.
void enqueue(CUstream leading, std::vector<Calls>&& given, bool is_counted) {
  std::string text;
  std::vector<abi::StreamWorkRange> ranges;
  for (const Calls& each : given) {
    text += (text.empty() ? "" : "; ") + text_of(each);
    for (const abi::StreamWorkRange& range : ranges_of(each)) ranges.push_back(range);
    if (is_counted) each.communicator->begin_work();
  }
  auto running = std::make_unique<Running>(Running{std::move(given), is_counted});
  const abi::StreamWork work{
      [](void* state, const abi::StreamWorkServices* services) { static_cast<const Running*>(state)->run(*services); },
      [](void* state) {
        const std::unique_ptr<Running> last(static_cast<Running*>(state));
        for (const Calls& each : last->calls) {
          if (last->is_counted) each.communicator->end_work();
        }
      },
      running.release(),
      text.c_str(),
      ranges.data(),
      ranges.size()};
  check(aiocuda_emulator_enqueue(leading, &work), "to put work on the stream");
}

// All of a communicator's work is in one order, whatever streams it was put on. Those that a group names beside the
// first one wait for it, as the first one waits for them.
void launch(Calls&& given) {
  const std::shared_ptr<Communicator> communicator = given.communicator;
  const std::vector<CUstream> streams = given.streams;
  const CUstream leading = streams.front();
  const CurrentContext current(leading);
  for (std::size_t each = 1; each < streams.size(); ++each) order(leading, streams[each]);
  if (communicator->last_event != nullptr && communicator->last_stream != leading) {
    check(cuStreamWaitEvent(leading, communicator->last_event, 0), "cuStreamWaitEvent");
  }
  std::vector<Calls> one;
  one.push_back(std::move(given));
  enqueue(leading, std::move(one), true);
  for (std::size_t each = 1; each < streams.size(); ++each) order(streams[each], leading);
  if (communicator->last_event == nullptr)
    check(cuEventCreate(&communicator->last_event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(cuEventRecord(communicator->last_event, leading), "cuEventRecord");
  communicator->last_stream = leading;
}

// In a graph, the nodes of one launch run one after another, but collectives of several communicators wait for each
// other. So they are one node.
void capture(std::vector<Calls>&& all) {
  std::vector<CUstream> streams;
  for (const Calls& each : all) streams.insert(streams.end(), each.streams.begin(), each.streams.end());
  const CUstream leading = streams.front();
  const auto others = [&](auto function) {
    for (const CUstream each : streams) {
      if (each != leading) function(each);
    }
  };
  others([&](CUstream each) {
    const CurrentContext current(each);
    order(leading, each);
  });
  enqueue(leading, std::move(all), false);
  const CurrentContext current(leading);
  others([&](CUstream each) { order(each, leading); });
}

// Each on a thread of its own, as each may wait for the others.
ncclResult_t wait_for_all(std::vector<Wait>& waits) {
  std::vector<std::thread> threads;
  std::vector<ncclResult_t> results(waits.size(), ncclInProgress);
  for (std::size_t each = 0; each < waits.size(); ++each) {
    Communicator& communicator = *waits[each].communicator;
    if (!communicator.blocks()) {
      communicator.run_later([function = waits[each].function] { function(); });
    } else {
      threads.emplace_back([&, each] { results[each] = waits[each].function(); });
    }
  }
  for (std::thread& each : threads) each.join();
  ncclResult_t worst = ncclSuccess;
  for (std::size_t each = 0; each < results.size(); ++each) {
    if (results[each] == ncclSuccess || (worst != ncclSuccess && worst != ncclInProgress)) continue;
    worst = results[each];
    if (worst != ncclInProgress) this_thread().refusal = waits[each].communicator->last_error();
  }
  return worst;
}

// NCCL connects ranks when they first call a collective, and two when they first send each other something, and keeps
// the caller until the others have called it, too. An all-to-all goes by messages, so it connects for these as well.
void add_connection(const Calls& calls, std::vector<Wait>& waits) {
  struct Other {
    int rank;
    const std::atomic<bool>* has_called;
  };
  Segment& segment = calls.communicator->segment();
  std::vector<Other> others;
  bool is_new = false;
  if (!calls.collectives.empty()) {
    is_new = !segment.own().has_called.exchange(true);
    for (int rank = 0; rank < segment.ranks(); ++rank) others.push_back({rank, &segment.part(rank).has_called});
  }
  if (std::ranges::any_of(calls.collectives, [](const Collective& each) { return each.kind == Kind::all_to_all; })) {
    for (int rank = 0; rank < segment.ranks(); ++rank) {
      if (!segment.channel(segment.rank(), rank).has_sender.exchange(true)) is_new = true;
      if (!segment.channel(rank, segment.rank()).has_receiver.exchange(true)) is_new = true;
    }
  }
  for (const Message& each : calls.messages) {
    Channel& channel =
        each.is_sent ? segment.channel(segment.rank(), each.peer) : segment.channel(each.peer, segment.rank());
    if (!(each.is_sent ? channel.has_sender : channel.has_receiver).exchange(true)) is_new = true;
    others.push_back({each.peer, each.is_sent ? &channel.has_receiver : &channel.has_sender});
  }
  if (is_new) segment.ring();
  const auto missing = [others = std::move(others)] {
    const auto found = std::find_if(others.begin(), others.end(), [](const Other& each) { return !*each.has_called; });
    return found == others.end() ? -1 : found->rank;
  };
  if (missing() < 0) return;
  waits.push_back({calls.communicator,
                   [communicator = calls.communicator.get(), missing] { return communicator->connect(missing); }});
}

ncclResult_t perform(Group&& group) {
  if (group.error != ncclSuccess) return group.error;
  for (const Calls& each : group.calls) {
    // One that does not block connects nothing: its calls would have to be put on their streams later.
    if (each.communicator->blocks()) add_connection(each, group.waits);
  }
  const ncclResult_t joined = wait_for_all(group.waits);
  if (joined != ncclSuccess && joined != ncclInProgress) return joined;
  try {
    if (!group.calls.empty() && is_captured(group.calls.front().streams.front())) {
      capture(std::move(group.calls));
    } else {
      for (Calls& each : group.calls) launch(std::move(each));
    }
  } catch (const Refused& refused) {
    return refuse(refused);
  }
  return joined;
}

}  // namespace

ncclResult_t refuse(const Refused& refused) {
  this_thread().refusal = refused.message;
  return refused.result;
}

const std::string& last_refusal() { return this_thread().refusal; }

ncclResult_t grouped(const std::function<void()>& call) {
  Group& group = this_thread().group;
  ++group.depth;
  ncclResult_t result = ncclSuccess;
  try {
    call();
  } catch (const Refused& refused) {
    result = refuse(refused);
    if (group.error == ncclSuccess) group.error = result;
  }
  if (--group.depth > 0) return result;
  return perform(std::exchange(group, Group()));
}

void add(const std::shared_ptr<Communicator>& communicator, const Collective& collective, CUstream stream) {
  this_thread().group.of(communicator, stream).collectives.push_back(collective);
}

void add(const std::shared_ptr<Communicator>& communicator, const Message& message, CUstream stream) {
  this_thread().group.of(communicator, stream).messages.push_back(message);
}

void add_wait(std::shared_ptr<Communicator> communicator, std::function<ncclResult_t()> wait) {
  this_thread().group.waits.push_back({std::move(communicator), std::move(wait)});
}

ncclResult_t start_group() {
  ++this_thread().group.depth;
  return ncclSuccess;
}

ncclResult_t end_group() {
  Group& group = this_thread().group;
  if (group.depth == 0) return refuse({ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart"});
  if (--group.depth > 0) return ncclSuccess;
  return perform(std::exchange(group, Group()));
}

}  // namespace aiocuda::emulator::nccl
