// A launch of a graph that has collectives. It may turn out to have failed as they may, so their groups look after it.
//
// Always true: all that the launch writes is in doubt from before it until a group says how it has ended, or the launch
// was not made. Guarded by the GIL.
#pragma once
#include <nanobind/stl/shared_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

#include "outcomes.hpp"

namespace aiocuda::driver {

class LaunchInDoubt {
 public:
  explicit LaunchInDoubt(Outcomes& outcomes) : outcomes_(outcomes) {}
  LaunchInDoubt(const LaunchInDoubt&) = delete;
  LaunchInDoubt& operator=(const LaunchInDoubt&) = delete;
  ~LaunchInDoubt() {
    if (is_made_) return;
    for (const dataflow::DoubtRef& doubt : doubts_) outcomes_.end(*doubt);
  }

  // Asks each group whose token is among what the graph writes; throws if one has ended.
  void ask(const std::vector<dataflow::Use>& uses, std::int32_t device, const std::string& place) {
    for (const dataflow::Use& of_group : uses) {
      if (!of_group.buffer->token || !of_group.writes) continue;
      const nb::object answer = of_group.buffer->token->launching(device, place);
      doubts_.push_back(nb::cast<dataflow::DoubtRef>(answer[0]));
      launched_.emplace_back(answer[1]);
      for (const dataflow::Use& use : uses)
        if (use.writes && (!use.buffer->token || use.buffer == of_group.buffer)) outcomes_.put(use, doubts_.back());
    }
  }
  // The launch is on a stream of this handle. Each group is told, and records its event behind it.
  void tell(std::uintptr_t stream) {
    is_made_ = true;
    for (const nb::object& each : launched_) each(stream);
  }

 private:
  Outcomes& outcomes_;
  bool is_made_ = false;
  std::vector<dataflow::DoubtRef> doubts_;
  std::vector<nb::object> launched_;
};

}  // namespace aiocuda::driver
