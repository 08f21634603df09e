// How the walk performs a copy: between arrays wherever they are, and between arrays and pageable memory.
//
// Always true: what a device does not reach, or the driver would copy itself while the caller waits, goes by way of
// other memory.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "copies.hpp"
#include "pageable.hpp"
#include "placing.hpp"

namespace aiocuda::dataflow {

// One copy of a walk's, which is performed once.
template <class Performing>
class Copying {
  using Sink = Performing::Sinks;
  using Value = Sink::Value;

 public:
  Copying(Performing& walk, CopyOp& op) : walk_(walk), sink_(walk.sink_), placing_(walk.placing_), op_(op) {}

  // `create`: the destination, where it is yet to be made.
  void perform(CreateOp* create) {
    if (const Pageable* memory = as_pageable(op_.destination)) return to_pageable(*memory);
    if (const Pageable* memory = as_pageable(op_.source)) return from_pageable(create, *memory);
    const Value from = walk_.value_of(op_.source), to = create ? Value{} : walk_.value_of(op_.destination);
    if (sink_.is_unknown(from) || (!create && sink_.is_unknown(to))) return finish_unknown(create ? from : to);
    const Array* source = sink_.array(from);
    if (!source) raise_no_array("source", from);
    if (!create && !sink_.array(to)) raise_no_array("destination", to);
    if (create && op_.moves && source->device == device_of(*create, source)) {
      placing_.inherit(op_, op_.source);
      return sink_.finish(op_, from);
    }
    sink_.finish(op_, reach(to, create, *source));
  }

 private:
  void finish_unknown(Value value) {
    sink_.copy_of_unknown(op_);
    sink_.finish(op_, value);
  }

  // Between arrays wherever they are; gives back the destination.
  Value reach(Value to, CreateOp* create, const Array& source) {
    const std::int32_t here = create ? device_of(*create, &source) : sink_.array(to)->device, there = source.device;
    const std::int32_t device = here != host_ordinal ? here : there != host_ordinal ? there : walk_.device_for(op_);
    sink_.require_open(op_, device);
    if (there != host_ordinal) sink_.require_open(op_, there);
    check_usable(source, false, [] { return std::string("copy: the source"); });
    const bool is_between_devices =
        here != there && here != host_ordinal && there != host_ordinal && !sink_.is_peer(device, there);
    // From host memory to host memory the driver copies itself, and keeps the caller until the stream has come there.
    const bool is_within_host = here == host_ordinal && there == host_ordinal && source.size_bytes() &&
                                (create || !is_same_place(*sink_.array(to), source));
    if (!is_between_devices && !is_within_host) return copy(to, create, source, device);
    // A step to page-locked memory and one from there; or the same through a device's memory.
    if (!create) check_copy(*sink_.array(to), source);
    const std::int32_t way = is_within_host ? device : host_ordinal;
    placing_.uses.clear();
    placing_.add(source, false);
    const StreamIndex stream = is_within_host ? placing_.choose(op_, device) : placing_.choose_on_way(op_, there);
    placing_.order(op_, stream);
    const Value staged = walk_.make_way(op_, source, way, stream);
    walk_.submit(op_, stream, [&] { sink_.copy(op_, *sink_.array(staged), source, stream); });
    has_begun_ = true;
    return copy(to, create, *sink_.array(staged), device);
  }

  // One copy on a stream of `device`; gives back the destination.
  Value copy(Value to, CreateOp* create, const Array& source, std::int32_t device) {
    placing_.uses.clear();
    if (!create) add_destination(*sink_.array(to), source);
    placing_.add(source, false);
    const StreamIndex stream = placing_.choose(op_, device);
    if (create) {
      to = make(*create, stream, device);
      add_destination(*sink_.array(to), source);
    }
    return copy_on(stream, to, source);
  }
  Value copy_on(StreamIndex stream, Value to, const Array& source) {
    placing_.order(op_, stream, has_begun_);
    walk_.submit(op_, stream, [&] { sink_.copy(op_, *sink_.array(to), source, stream); });
    return to;
  }
  void add_destination(const Array& destination, const Array& source) {
    check_copy(destination, source);
    placing_.add(destination, true);
  }
  Value make(CreateOp& create, StreamIndex stream, std::int32_t device) {
    return walk_.make(create, stream, device, Py_REFCNT(op_.destination.ptr()) > 1);
  }
  // The device of a destination that names none. A copy reaches every device, so its source counts least.
  std::int32_t device_of(const CreateOp& create, const Array* source) {
    const bool counts = source && !source->is_host() && !op_.moves;
    return walk_.device_of(create, [&] { return walk_.device_for(op_, counts ? source->device : unknown_ordinal); });
  }

  void from_pageable(CreateOp* create, const Pageable& memory) {
    Value to = create ? Value{} : walk_.value_of(op_.destination);
    if (!create && sink_.is_unknown(to)) return finish_unknown(to);
    const Array* array = create ? nullptr : sink_.array(to);
    if (!create && !array) raise_no_array("destination", to);
    const Array planned =
        create ? Array{BufferRef(), 0, device_of(*create, nullptr), create->spec.dtype, create->shape} : *array;
    check_pageable(planned, memory);
    const std::int32_t device = planned.is_host() ? walk_.device_for(op_) : planned.device;
    if constexpr (Sink::stages_copies) {
      if (const Array* locked = as_array(memory.locked)) return sink_.finish(op_, reach(to, create, *locked));
      if (sink_.stages(memory, planned)) {
        placing_.uses.clear();
        if (!create) {
          check_usable(planned, true, [] { return std::string("copy: the destination"); });
          placing_.add(planned, true);
        }
        placing_.uses.push_back({&memory.hazards_in(sink_.pageable()), memory.span(), false});
        const StreamIndex stream = place_staged(memory, device, planned);
        if (create) {
          to = make(*create, stream, device);
          placing_.add(*sink_.array(to), true);
        }
        stage(stream, [&] { sink_.upload(op_, *sink_.array(to), stream); });
        return sink_.finish(op_, to);
      }
    }
    refuse_file(memory);
    const Value read = sink_.page_locked(op_, memory, device);
    sink_.finish(op_, reach(to, create, *sink_.array(read)));
  }

  void to_pageable(const Pageable& memory) {
    if constexpr (Sink::stages_copies) {
      const Value from = walk_.value_of(op_.source);
      if (sink_.is_unknown(from)) return finish_unknown(sink_.constant(memory.owner));
      const Array* source = sink_.array(from);
      if (!source) raise_no_array("source", from);
      check_pageable(*source, memory);
      check_usable(*source, false, [] { return std::string("copy: the source"); });
      if (as_array(memory.locked)) {
        reach(sink_.constant(memory.locked), nullptr, *source);
      } else {
        placing_.uses.clear();
        placing_.add(*source, false);
        placing_.uses.push_back({&memory.hazards_in(sink_.pageable()), memory.span(), true});
        const StreamIndex stream =
            place_staged(memory, source->is_host() ? walk_.device_for(op_) : source->device, *source);
        stage(stream, [&] { sink_.download(op_, *source, stream); });
      }
      sink_.finish(op_, sink_.constant(memory.owner));
    } else {
      refuse_file(memory);
      raise(error_types.capture, "a graph cannot copy to " + describe(memory) +
                                     ", which a device does not reach; end the graph with to_host(array), which yields "
                                     "page-locked memory, and copy from there");
    }
  }

  StreamIndex place_staged(const Pageable& memory, std::int32_t device, const Array& array) {
    sink_.require_open(op_, device);
    if (memory.host.file()) sink_.require_file(op_, memory, device, array, placing_.uses);
    if (const std::optional<Tick> until = sink_.staging_full(device, memory)) throw Full{*until, false};
    return placing_.choose(op_, device);
  }
  template <class F>
  void stage(StreamIndex stream, F&& f) {
    placing_.order(op_, stream);
    walk_.submit(op_, stream, std::forward<F>(f));
  }

  // Only graphs come here with one.
  static void refuse_file(const Pageable& memory) {
    if (memory.host.file())
      raise(error_types.capture, "a graph cannot read or write a file, and " + memory.name +
                                     " was to be part of one; read it before the graph into an array that the graph "
                                     "takes as an input, and write what the graph returns after its launch");
  }
  void check_pageable(const Array& array, const Pageable& memory) const {
    if (array.is_partition())
      raise(error_types.argument_type, "copy: " + describe(array) + " was given; unpartition() it first");
    if (array.dtype != memory.dtype || array.shape != memory.shape)
      raise(error_types.argument_value, "copy: destination and source differ: one is " + describe(array) +
                                            ", the other " + describe(memory) + "; give both the same shape and dtype");
  }
  [[noreturn, gnu::cold]] void raise_no_array(const char* which, Value value) {
    raise(error_types.argument_type, std::string("copy: the ") + which + " is not an array but " +
                                         nb::cast<std::string>(nb::repr(sink_.object(value))));
  }

  Performing& walk_;
  Sink& sink_;
  Placing<Sink>& placing_;
  CopyOp& op_;
  bool has_begun_ = false;  // a step of it has been submitted
};

}  // namespace aiocuda::dataflow
