// Doubts: the work of a collective may turn out to have failed though the device has passed it, because another rank is
// gone. Until it is known, the bytes that it wrote are in doubt, and so is what was made of them.
//
// Always true: a doubt is open, and then well or failed for good. Bytes under a failed one are not used again. Guarded
// by the GIL.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "region.hpp"

namespace aiocuda::dataflow {

struct Doubt {
  enum class State : std::uint8_t { open, well, failed };
  State state = State::open;
  nanobind::object error;  // once it has failed
  nanobind::object asked;  // says whom the work waits for, as long as it is open
  // Nothing may use the bytes any more, because a group has ended. Work that was submitted before goes on.
  bool is_of_use = false;

  // Makes the error anew each time. The traceback of an error that was raised keeps its frames, and all that they have;
  // and the doubt is there as long as the bytes.
  nanobind::object error_again() const { return error.type()(*error.attr("args")); }
  [[noreturn, gnu::cold]] void raise() const {
    const nanobind::object again = error_again();
    PyErr_SetObject(again.type().ptr(), again.ptr());
    throw nanobind::python_error();
  }
};
using DoubtRef = std::shared_ptr<Doubt>;

// A group of devices, for launches of graphs that have calls of it.
struct Token {
  // Called before a launch, with its device and the place of its graph. Returns the doubt about what the graph writes,
  // and what is called with the stream's handle behind the launch.
  nanobind::object launching;
};

// The doubts about a buffer.
class Doubts {
 public:
  void add(Span span, const DoubtRef& doubt) {
    std::erase_if(parts_, [&](const Part& part) {
      const bool is_covered = part.doubt == doubt && span.begin <= part.span.begin && part.span.end <= span.end;
      return is_covered || part.doubt->state == Doubt::State::well;
    });
    parts_.push_back({span, doubt});
  }
  // Calls f(doubt) for those of these bytes.
  template <class F>
  void each(Span span, F&& f) const {
    for (const Part& part : parts_)
      if (part.span.begin < span.end && span.begin < part.span.end) f(part.doubt);
  }
  const Doubt* find_failed(Span span) const {
    const Doubt* failed = nullptr;
    each(span, [&](const DoubtRef& doubt) {
      if (doubt->state == Doubt::State::failed) failed = doubt.get();
    });
    return failed;
  }

 private:
  struct Part {
    Span span;
    DoubtRef doubt;
  };
  std::vector<Part> parts_;
};

}  // namespace aiocuda::dataflow
