// Stream capture, as the rest of the driver uses it. While a stream takes part in a capture, a call that would put work
// into it makes a node of a graph instead. Some calls need captured work to have run, or would tie it to work that
// really runs. The driver refuses those, and most of them end the capture. These refusals were tried on NVIDIA's driver
// 580. Always: while nothing is captured in the process, each of these costs a look at a counter.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "api.hpp"

namespace aiocuda::emulator {
class Context;
class Event;
class Stream;
struct EventRecord;
namespace graph {
class Graph;
class NodeParameters;
}  // namespace graph
}  // namespace aiocuda::emulator

namespace aiocuda::emulator::capture {

// How many captures have begun and not ended.
inline std::atomic<int> going_on{0};
inline bool is_going_on() noexcept { return going_on.load(std::memory_order_acquire) > 0; }

using MakeParameters = std::function<CUresult(std::shared_ptr<const graph::NodeParameters>&)>;
std::optional<CUresult> capture(Stream& stream, const MakeParameters& make);

// For every call that puts work into a stream. Nothing: the work is to run. Else what the call answers, for the stream
// is captured (`make` makes the parameters of the node, or says why there can be none) or must not be used. `make` is
// called under graph::graphs_mutex().
//
//   const auto captured = capture::instead_of_work(*stream, [&](graph::ParametersPointer& made) { ... });
//   if (captured) return *captured;
template <typename Make>
std::optional<CUresult> instead_of_work(Stream& stream, Make&& make) {
  return is_going_on() ? capture(stream, std::ref(make)) : std::nullopt;
}

// The same for work that no node stands for: STREAM_CAPTURE_UNSUPPORTED where the stream is captured.
enum class Consequence { invalidates, none };
CUresult check_not_captured(Stream& stream, Consequence consequence = Consequence::invalidates);

// A launch into the stream is refused for what it asks: if the stream is captured, the capture comes to nothing by it.
void spoil(Stream& stream);

// For calls that ask how far a stream, a context or an event is, or wait until it is there. The last is given null for
// an event that was never recorded.
CUresult check_may_ask(Stream& stream);
CUresult check_may_ask(const Context& context);
CUresult check_may_ask(const EventRecord* record);
// CAPTURED_EVENT, or INVALID_VALUE after the end of the capture, where the event stands for captured work.
CUresult check_not_captured(const EventRecord& record);

// For the rest of what CUDA calls potentially unsafe: the calling thread's mode and the captures that are going on say
// whether it may go on. The ones above ask this, too.
CUresult check_unsafe_call();
// The calling thread's mode (cuThreadExchangeStreamCaptureMode).
CUstreamCaptureMode& mode_of_thread() noexcept;

// For cuStreamIsCapturing and the like: STREAM_CAPTURE_IMPLICIT for the legacy default stream while a stream that
// orders itself with it is captured.
CUresult check_implicit(const Stream& stream);

// In a captured stream an event is not recorded, but stands for what has been captured so far. False where the stream
// is not captured.
CUresult record(Stream& stream, Event& event, bool& was_captured);
// A wait for a captured event makes the stream take part in its capture. False where neither is captured.
CUresult wait(const std::shared_ptr<Stream>& stream, const EventRecord* record, bool& was_captured);

// The stream is about to be destroyed.
void leave(Stream& stream);

// Is a capture into this graph going on, or into one that it belongs together with as the body of a node? Until it has
// ended, neither must be destroyed or lose nodes. Under graph::graphs_mutex().
bool is_captured_into(const graph::Graph& graph);

}  // namespace aiocuda::emulator::capture
