#include "placements.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "../dataflow/placement.hpp"
#include "../dataflow/raise.hpp"
#include "direct.hpp"
#include "places.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using namespace nb::literals;

// A policy may hold, through Python, a placement that names it: the collector must see through. It needs no `tp_clear`,
// because the placement itself cannot change and whatever else is in the circle can.
int placement_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* placement = nb::inst_ptr<Placement>(self);
  Py_VISIT(placement->stream_object.ptr());
  Py_VISIT(placement->policy_object.ptr());
  return 0;
}

PyType_Slot placement_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(placement_traverse)}, {0, nullptr}};

}  // namespace

void raise_recorded(const Placement& placement) {
  raise(error_types.capture, "an operation was to be executed inside " + placement.recording_at +
                                 ": nothing runs there, it is recorded into a graph; "
                                 "make the operation a part of that, or execute it outside");
}

void bind_placements(nb::module_& module) {
  auto type = nb::class_<Placement>(module, "Placement", nb::type_slots(placement_slots));
  is_placement.set(reinterpret_cast<PyTypeObject*>(type.ptr()));
  type.def(nb::init<>())
      .def_prop_ro("device", [](const Placement& self) { return ordinal_or_none(self.device); })
      .def_prop_ro("policy", [](const Placement& self) { return self.policy ? self.policy_object : nb::none(); })
      .def_prop_ro("memory_limits",
                   [](const Placement& self) {
                     nb::object limits = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(self.memory.size())));
                     for (std::size_t i = 0; i < self.memory.size(); ++i) {
                       const MemoryLimit& each = self.memory[i];
                       PyTuple_SET_ITEM(limits.ptr(), static_cast<Py_ssize_t>(i),
                                        nb::make_tuple(each.device, each.most_bytes, each.waits).release().ptr());
                     }
                     return limits;
                   })
      .def_prop_ro("is_recording", [](const Placement& self) { return !self.recording_at.empty(); })
      // A copy with the changes that are given here.
      .def(
          "on_device",
          [](const Placement& self, std::int32_t device) {
            Placement named;
            named.device = device;
            return self.with_place_of(named);
          },
          "device"_a)
      .def(
          "on_stream",
          [](const Placement& self, StreamId stream, std::int32_t device, nb::object keepalive) {
            Placement named;
            named.device = device;
            named.stream = stream;
            named.stream_object = std::move(keepalive);
            return self.with_place_of(named);
          },
          "stream"_a, "device"_a, "keepalive"_a)
      .def(
          "with_policy",
          [](const Placement& self, nb::handle_t<Policy> policy) {
            Placement named;
            named.policy = nb::inst_ptr<Policy>(policy);
            named.policy_object = nb::borrow(policy);
            return self.with_place_of(named);
          },
          "policy"_a)
      .def(
          "with_spin_us",
          [](const Placement& self, std::int32_t spin_us) {
            Placement changed = self;
            changed.spin_us = spin_us;
            return changed;
          },
          "spin_us"_a)
      .def(
          "with_max_in_flight",
          [](const Placement& self, std::uint32_t most) {
            Placement changed = self;
            changed.max_in_flight = most;
            return changed;
          },
          "most"_a)
      .def(
          "with_priority",
          [](const Placement& self, std::int64_t priority) {
            Placement changed = self;
            changed.priority = priority;
            return changed;
          },
          "priority"_a)
      .def_prop_ro("priority", [](const Placement& self) { return self.priority; })
      // On the streams of a policy.
      .def(
          "stream_priority",
          [](const Placement& self, nb::handle_t<Policy> policy) {
            return self.stream_priority(*nb::inst_ptr<Policy>(policy));
          },
          "policy"_a)
      // Each: (device, bytes, whether who asks for more waits); one for a device or none.
      .def(
          "with_memory_limits",
          [](const Placement& self, const nb::sequence& limits) {
            Placement changed = self;
            changed.memory.clear();
            for (nb::handle each : limits) {
              const auto limit = nb::cast<nb::tuple>(each);
              changed.memory.push_back(
                  {nb::cast<std::int32_t>(limit[0]), nb::cast<std::uint64_t>(limit[1]), nb::cast<bool>(limit[2])});
            }
            return changed;
          },
          "limits"_a)
      .def(
          "recording",
          [](const Placement& self, std::string what) {
            Placement changed = self;
            changed.recording_at = std::move(what);
            return changed;
          },
          "what"_a);

  module.def("set_placement_variable", [](nb::object variable) { placement_variable() = variable.release(); });
  module.def("default_device", [] { return defaults().device; });
  module.def("set_default_device", [](std::int32_t device) { defaults().device = device; });
  module.def("default_policy", [] { return defaults().policy_object; });
  module.def("set_default_policy", [](nb::handle_t<Policy> policy) {
    defaults().policy = nb::inst_ptr<Policy>(policy);
    defaults().policy_object = nb::borrow(policy);
  });
}

}  // namespace aiocuda
