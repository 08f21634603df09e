// The trace that is being recorded, if one is.
//
// Always true: there is one at a time. Whoever records asks for it at each step, because it may end between two. What
// holds Python's objects is cleared with the GIL. Guarded by the GIL.
#pragma once
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../dataflow/operation.hpp"
#include "../trace/recorder.hpp"
#include "correlation.hpp"
#include "timing.hpp"

namespace aiocuda::driver {

struct Recording {
  Recording(Devices& devices, Streams& streams, nb::object asked_who)
      : timing(recorder, devices, streams), who(std::move(asked_who)) {}
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  // The line of the program's that built it, as a number.
  trace::Number place(const dataflow::Origin& origin) {
    dataflow::Maker maker = origin.maker();
    if (!maker.object()) return trace::none;
    const auto [found, is_new] =
        numbers_.try_emplace({maker.object(), maker.number()}, static_cast<trace::Number>(places.size()));
    if (is_new) places.push_back(std::move(maker));
    return found->second;
  }
  // Memory of Python's that a copy wrote, and which copy that was, while the object lives. At times it forgets those
  // that are gone.
  void note_written(const nb::object& owner, trace::Number by);
  trace::Number written_by(const nb::object& owner) const;
  trace::Number begin_ask(const void* key, trace::AskKind kind, const dataflow::Op& op);
  void end_ask(const void* key, trace::Outcome outcome, const dataflow::Op& op) noexcept;

  trace::Recorder recorder;
  Timing timing;
  Correlation correlation;
  std::vector<dataflow::Maker> places;
  nb::object who;  // () -> the event loop and the task that run now, or the thread, in words
  nb::object began{},
      ended{};  // (number, title), (number, error or None): told when somebody asks, and when that ends; or none

 private:
  struct Written {
    nb::object reference;  // weak
    trace::Number by;
  };
  std::unordered_map<void*, Written> written_;
  std::size_t written_most_ = 1 << 12;  // before it looks which are gone
  std::map<std::pair<void*, int>, trace::Number> numbers_;
};

inline Recording* recording = nullptr;

// Begins and ends it.
void set_recording(Recording* to);

// What the exception that is set now says of who asked.
trace::Outcome outcome_of_error(nb::handle exception_type);

}  // namespace aiocuda::driver
