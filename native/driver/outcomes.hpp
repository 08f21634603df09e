// Which submitted work depends on collectives whose outcome is not known yet: see dataflow/doubt.hpp.
//
// Always true: work that reads bytes in doubt is in doubt itself, and so are the bytes that it writes. Guarded by the
// GIL.
#pragma once
#include <algorithm>
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
  // Was there ever a doubt? Then an operation remembers each submission that its result depends on.
  bool has_any() const { return has_any_; }

  // The use was submitted, among others of the same work.
  void note(const dataflow::Use& use, const std::vector<dataflow::Use>& uses, dataflow::Tick now) {
    std::vector<dataflow::DoubtRef> found;
    use.buffer->doubts->each(use.span, [&](const dataflow::DoubtRef& doubt) {
      if (doubt->state == dataflow::Doubt::State::well || doubt->is_of_use) return;
      found.push_back(doubt);  // it may have failed meanwhile
    });
    if (found.empty()) return;
    forget_well();
    std::vector<dataflow::DoubtRef>& noted = ticks_[now];
    for (const dataflow::DoubtRef& doubt : found) {
      if (std::find(noted.begin(), noted.end(), doubt) != noted.end()) continue;  // a tick is of one work alone
      noted.push_back(doubt);
      for (const dataflow::Use& each : uses)
        if (each.writes && !each.buffer->token) put(each, doubt);
    }
  }
  // Memory of others, such as NumPy's, comes back as somebody else's, so nothing is remembered about it.
  void put(const dataflow::Use& use, const dataflow::DoubtRef& doubt) {
    dataflow::Buffer& buffer = *use.buffer;
    has_any_ = true;
    if (buffer.is_address_space()) return;
    if (!buffer.doubts) buffer.doubts = std::make_shared<dataflow::Doubts>();
    buffer.doubts->add(use.span, doubt);
    buffer.is_in_doubt = true;
  }

  void end(dataflow::Doubt& doubt) {
    if (doubt.state != dataflow::Doubt::State::open) return;
    doubt.state = dataflow::Doubt::State::well;
    doubt.asked.reset();
  }
  void fail(dataflow::Doubt& doubt, nb::object error) {
    if (doubt.state != dataflow::Doubt::State::open) return;
    doubt.state = dataflow::Doubt::State::failed;
    doubt.error = std::move(error);
    doubt.asked.reset();
    has_failed_ = true;
  }
  // Every use of these bytes raises the error from now on.
  void refuse_use(const dataflow::Use& use, nb::object error) {
    const auto refused = std::make_shared<dataflow::Doubt>();
    refused->state = dataflow::Doubt::State::failed;
    refused->error = std::move(error);
    refused->is_of_use = true;
    put(use, refused);
  }
  // Who can say whom the work waits for that an operation depends on. The operation was submitted.
  std::vector<nb::object> asked(const dataflow::Op& op) const {
    std::vector<nb::object> found;
    each_noted(op, [&](const dataflow::Doubt& doubt) {
      if (doubt.asked.is_valid()) found.push_back(doubt.asked);
    });
    return found;
  }
  // The error of the collective that an operation depends on, if one has failed. The operation was submitted.
  nb::object find_error(const dataflow::Op& op) const {
    const dataflow::Doubt* failed = nullptr;
    each_noted(op, [&](const dataflow::Doubt& doubt) {
      if (doubt.state == dataflow::Doubt::State::failed) failed = &doubt;
    });
    if (!failed && op.is_done()) {
      dataflow::each_array_in(op.outcome, [&](const dataflow::Array& array, nb::handle) {
        if (!array.buffer || !array.buffer->is_in_doubt) return;
        if (const dataflow::Doubt* const found = array.buffer->doubts->find_failed(array.span())) failed = found;
      });
    }
    return failed ? failed->error_again() : nb::object();
  }

 private:
  // Calls f(doubt) for those about the work that an operation depends on.
  template <class F>
  void each_noted(const dataflow::Op& op, F&& f) const {
    const auto look_up = [&](const auto& ticks) {
      for (const dataflow::Tick tick : ticks) {
        const auto found = ticks_.find(tick);
        if (found == ticks_.end()) continue;
        for (const dataflow::DoubtRef& doubt : found->second) f(*doubt);
      }
    };
    if (op.all_ready)
      look_up(*op.all_ready);
    else
      look_up(op.ready);
  }
  // Each time their number has doubled.
  void forget_well() {
    if (ticks_.size() < forget_at_) return;
    std::erase_if(ticks_, [](const auto& each) {
      return std::all_of(each.second.begin(), each.second.end(),
                         [](const dataflow::DoubtRef& doubt) { return doubt->state == dataflow::Doubt::State::well; });
    });
    forget_at_ = std::max<std::size_t>(256, 2 * ticks_.size());
  }

  std::map<dataflow::Tick, std::vector<dataflow::DoubtRef>> ticks_;
  std::size_t forget_at_ = 256;
  bool has_any_ = false, has_failed_ = false;
};

}  // namespace aiocuda::driver
