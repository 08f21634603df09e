// Which submitted work depends on collectives whose outcome is not known yet: see dataflow/doubt.hpp.
//
// Always true: work that reads bytes in doubt is in doubt itself, and so are the bytes that it writes. Guarded by the
// GIL.
#pragma once
#include <map>
#include <vector>

#include "../dataflow/arrays_in.hpp"
#include "../dataflow/doubt.hpp"
#include "../dataflow/placing.hpp"

namespace aiocuda::driver {
namespace nb = nanobind;

class Outcomes {
 public:
  bool has_failed() const { return has_failed_; }

  // The failed one about bytes that an operation is to use, or null.
  const dataflow::Doubt* find_failed(const dataflow::Use& use) const {
    return has_failed_ ? use.buffer->doubts->find_failed(use.span) : nullptr;
  }
  // The use was submitted, among others of the same work.
  void note(const dataflow::Use& use, const std::vector<dataflow::Use>& uses, dataflow::Tick now) {
    std::vector<dataflow::DoubtRef> found;
    use.buffer->doubts->each(use.span, [&](const dataflow::DoubtRef& doubt) {
      if (doubt->state == dataflow::Doubt::State::open) found.push_back(doubt);
    });
    for (const dataflow::DoubtRef& doubt : found) {
      forget_well();
      ticks_[now] = doubt;
      for (const dataflow::Use& each : uses)
        if (each.writes) put(each, doubt);
    }
  }
  static void put(const dataflow::Use& use, const dataflow::DoubtRef& doubt) {
    dataflow::Buffer& buffer = *use.buffer;
    if (!buffer.doubts) buffer.doubts = std::make_shared<dataflow::Doubts>();
    buffer.doubts->add(use.span, doubt);
    buffer.is_in_doubt = true;
  }

  void end(dataflow::Doubt& doubt) {
    if (doubt.state == dataflow::Doubt::State::open) doubt.state = dataflow::Doubt::State::well;
  }
  void fail(dataflow::Doubt& doubt, nb::object error) {
    if (doubt.state != dataflow::Doubt::State::open) return;
    doubt.state = dataflow::Doubt::State::failed;
    doubt.error = std::move(error);
    has_failed_ = true;
  }
  // What an operation that was submitted depends on failed with; none if nothing did.
  nb::object find_error(const dataflow::Op& op) const {
    for (const dataflow::Tick tick : op.ready) {
      const auto found = ticks_.find(tick);
      if (found != ticks_.end() && found->second->state == dataflow::Doubt::State::failed) return found->second->error;
    }
    nb::object error;
    if (op.is_done()) {
      dataflow::each_array_in(op.outcome, [&](const dataflow::Array& array, nb::handle) {
        if (!array.buffer || !array.buffer->is_in_doubt) return;
        if (const dataflow::Doubt* const failed = array.buffer->doubts->find_failed(array.span()))
          error = failed->error;
      });
    }
    return error;
  }

 private:
  // Each time their number has doubled.
  void forget_well() {
    if (ticks_.size() < forget_at_) return;
    std::erase_if(ticks_, [](const auto& each) { return each.second->state == dataflow::Doubt::State::well; });
    forget_at_ = std::max<std::size_t>(256, 2 * ticks_.size());
  }

  std::map<dataflow::Tick, dataflow::DoubtRef> ticks_;
  std::size_t forget_at_ = 256;
  bool has_failed_ = false;
};

}  // namespace aiocuda::driver
