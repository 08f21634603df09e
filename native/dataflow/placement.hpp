// The placement of an execution: where it puts operations that name no place themselves, and how much they may take up.
//
// Always true: a placement never changes once it was made; one that differs is another object. Guarded by the GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "policy.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

// The most that arrays may hold on a device while something is executed.
struct MemoryLimit {
  std::int32_t device;
  std::uint64_t most_bytes;
  bool waits;  // an operation that asks for more waits until there is room, and does not fail
};

// The defaults of the process, where no placement says otherwise.
struct Defaults {
  std::int32_t device = 0;
  nb::object policy_object{};  // holds the policy
  const Policy* policy = nullptr;
};
inline Defaults& defaults() {
  static auto* of_process = new Defaults;  // never released: the interpreter may have gone first
  return *of_process;
}

struct Placement {
  std::int32_t device = unknown_ordinal;   // unknown_ordinal: it names no device
  StreamId stream = no_stream;             // of that device, for all of its operations
  nb::object stream_object{};              // holds the stream
  nb::object policy_object{};              // holds the policy
  const Policy* policy = nullptr;          // chooses the stream else; null: the process's policy does
  std::int32_t spin_us = 20;               // how long an await may spin before it gives the event loop back
  std::uint32_t max_in_flight = 250;       // submissions that a stream may hold
  std::optional<std::int64_t> priority{};  // of its work, higher ones first; none: the policy says the streams'
  std::vector<MemoryLimit> memory{};       // one for a device, or none
  std::string recording_at{};              // what is recorded into a graph here, in words: then nothing is executed

  std::int32_t device_or_default() const { return device != unknown_ordinal ? device : defaults().device; }
  const Policy& policy_or_default() const { return policy ? *policy : *defaults().policy; }
  // CUDA counts the other way, from 0 down. The driver takes a lower one than its lowest for its lowest.
  int stream_priority(const Policy& of) const {
    if (!priority) return of.priority;
    return -static_cast<int>(std::clamp<std::int64_t>(*priority, 0, std::numeric_limits<int>::max()));
  }
  const MemoryLimit* limit_of(std::int32_t ordinal) const {
    for (const MemoryLimit& each : memory)
      if (each.device == ordinal) return &each;
    return nullptr;
  }

  // With the device, stream and policy that another placement names; the rest stays.
  Placement with_place_of(const Placement& other) const {
    Placement changed = *this;
    if (other.device != unknown_ordinal || other.policy) {
      changed.stream = other.stream;
      changed.stream_object = other.stream_object;
    }
    if (other.device != unknown_ordinal) changed.device = other.device;
    if (other.policy) {
      changed.policy = other.policy;
      changed.policy_object = other.policy_object;
    }
    return changed;
  }
};

// The ContextVar that holds the placement in force.
inline nb::handle& placement_variable() {
  static auto* variable = new nb::handle;
  return *variable;
}
inline nb::object placement_in_force() {
  PyObject* found = nullptr;
  if (PyContextVar_Get(placement_variable().ptr(), nullptr, &found) < 0) throw nb::python_error();
  return nb::steal(found);
}

// Puts a placement in force for a function of the program's, in the context that runs; ends with the scope, also by an
// error.
class InForce {
 public:
  explicit InForce(const nb::object& placement) {
    if (placement_in_force().is(placement)) return;
    token_ = nb::steal(PyContextVar_Set(placement_variable().ptr(), placement.ptr()));
    if (!token_.is_valid()) throw nb::python_error();
  }
  InForce(const InForce&) = delete;
  InForce& operator=(const InForce&) = delete;
  ~InForce() {
    if (!token_.is_valid()) return;
    const nb::error_scope kept;
    if (PyContextVar_Reset(placement_variable().ptr(), token_.ptr()) < 0)
      PyErr_WriteUnraisable(placement_variable().ptr());
  }

 private:
  nb::object token_;  // none where it was in force already
};

}  // namespace aiocuda::dataflow
