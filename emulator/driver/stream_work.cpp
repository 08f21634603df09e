// Work that libraries beside the driver put into streams (abi/stream_work.hpp). For the checker of races it is work
// like any other: it says what it reads and writes.
#include "abi/stream_work.hpp"

#include <memory>
#include <string>
#include <vector>

#include "capture/capture.hpp"
#include "context.hpp"
#include "fault.hpp"
#include "graph/node_parameters.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {
namespace {

using abi::StreamWorkServices;

// One piece of such work, in a stream or in a graph. Released with the last who may run it.
class GivenWork {
 public:
  GivenWork(const abi::StreamWork& work, std::shared_ptr<Context> context)
      : run_(work.run),
        release_(work.release),
        state_(work.state),
        text_(work.text),
        ranges_(work.ranges, work.ranges + work.range_count),
        context_(std::move(context)) {}
  ~GivenWork() { release_(state_); }
  GivenWork(const GivenWork&) = delete;
  GivenWork& operator=(const GivenWork&) = delete;

  void run() const {
    const StreamWorkServices services{&is_lost, &touch, const_cast<GivenWork*>(this)};
    run_(state_, &services);
  }
  const std::string& text() const noexcept { return text_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  checking::Accesses accesses() const {
    checking::Accesses accesses;
    for (const abi::StreamWorkRange& each : ranges_) {
      accesses.push_back(
          {each.address, each.address + each.bytes, each.is_written ? abi::access_write : abi::access_read});
    }
    return accesses;
  }

 private:
  static bool is_lost(void* self) { return static_cast<const GivenWork*>(self)->context_->lost(); }
  static bool touch(void* self, void (*function)(void*), void* argument) {
    const auto& work = *static_cast<const GivenWork*>(self);
    const Fault fault = run_guarded(function, argument);
    if (fault) work.context_->fail(fault.error, work.text_ + ": " + fault.message);
    return !fault;
  }

  void (*const run_)(void*, const StreamWorkServices*);
  void (*const release_)(void*);
  void* const state_;
  const std::string text_;
  const std::vector<abi::StreamWorkRange> ranges_;
  const std::shared_ptr<Context> context_;
};

class GivenWorkInStream final : public Work {
 public:
  explicit GivenWorkInStream(std::shared_ptr<const GivenWork> work) : work_(std::move(work)) {}
  void run() override { work_->run(); }
  std::string text() const override { return work_->text(); }
  checking::Accesses accesses() override { return work_->accesses(); }

 private:
  const std::shared_ptr<const GivenWork> work_;
};

// A program that asks the node for its function gets one that may be called.
void call_given_work(void* work) { static_cast<const GivenWork*>(work)->run(); }

class GivenWorkParameters final : public graph::HostParameters {
 public:
  explicit GivenWorkParameters(std::shared_ptr<const GivenWork> work)
      : HostParameters({&call_given_work, const_cast<GivenWork*>(work.get())}), work_(std::move(work)) {}
  std::shared_ptr<Context> context() const override { return work_->context(); }
  void append_work(graph::Works& works) const override { works.push_back(std::make_shared<GivenWorkInStream>(work_)); }
  std::string title() const override { return work_->text(); }

 private:
  const std::shared_ptr<const GivenWork> work_;
};

}  // namespace
}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

extern "C" [[gnu::visibility("default")]] CUresult aiocuda_emulator_enqueue(CUstream handle,
                                                                            const abi::StreamWork* given) {
  std::shared_ptr<Stream> stream;
  const CUresult error = resolve_stream(handle, stream);
  if (error != CUDA_SUCCESS) {
    given->release(given->state);
    return error;
  }
  auto work = std::make_shared<const GivenWork>(*given, stream->context().shared_from_this());
  const auto captured = capture::instead_of_work(*stream, [&](graph::ParametersPointer& made) {
    made = std::make_shared<GivenWorkParameters>(work);
    return CUDA_SUCCESS;
  });
  if (captured) return *captured;
  stream->enqueue(std::make_unique<GivenWorkInStream>(std::move(work)));
  return CUDA_SUCCESS;
}
