#include "ownership.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "../dataflow/access.hpp"
#include "../dataflow/launch.hpp"
#include "../dataflow/origin.hpp"
#include "../driver/refused.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using namespace nb::literals;
using driver::Engine;

Claims& claims_of(Array& array) {
  if (!array.buffer->claims) array.buffer->claims = std::make_unique<Claims>();
  return *array.buffer->claims;
}

template <class Forbids>
void require(Array& array, const char* transition, Forbids&& forbids) {
  if (!array.buffer) raise_ended(array, transition);
  if (const Claim* claim = forbids(claims_of(array), array.region()))
    raise_claimed(*claim, transition, describe(array));
}

// The group that rights of a loan's handles come from.
void take_group(Array& array);

GroupRef claim(Array& array, ClaimKind kind, const std::string& place) {
  if (!array.group && array.loan) take_group(array);
  auto group = std::make_shared<Group>(Group{array.group});
  Region region = array.region();
  Claims& claims = claims_of(array);
  if (kind == ClaimKind::moved && array.group && claims.move_on(array.group.get(), region, group, place)) return group;
  claims.add(kind, std::move(region), group, place);
  return group;
}

bool is_shared_handle(Array& array) {
  if (!array.group || !array.buffer) return false;
  const Claim* own = claims_of(array).of(array.group.get());
  return own && own->kind == ClaimKind::shared;
}

// The loan of memory that is somebody else's: all handles that came of one call keep it. It stays his until the device
// has passed all that used it here. The rights that the handles took end with the loan, since other loans of the same
// memory may follow.
struct KeptLoan final : Loan {
  BufferRef buffer;
  Span span;
  GroupRef group{};  // of the loan's first handle, once it takes a right

  KeptLoan(nb::object lent_by, Lender* from, BufferRef lent, Span bytes)
      : Loan(std::move(lent_by), from), buffer(std::move(lent)), span(bytes) {}
  ~KeptLoan() {
    if (group && buffer->claims) buffer->claims->remove_all_of(*group);
    Engine& engine = process_engine();
    auto keep = [&](Tick tick) {
      if (!engine.timeline.is_known_complete(tick)) engine.retain(tick, owner);
    };
    buffer->hazards.each(span, [&](const Hazard& hazard, Span) { hazard.each_before(true, keep); });
  }
};

void take_group(Array& array) {
  auto& loan = static_cast<KeptLoan&>(*array.loan);
  if (!loan.group) loan.group = std::make_shared<Group>();
  array.group = loan.group;
}

// An array over memory that is somebody else's, or that somebody has borrowed from here.
void find_memory(Array& array, std::uint64_t address,
                 driver::Memory::Borrowed (driver::Memory::*find)(CUdeviceptr, std::uint64_t, std::int32_t)) {
  Engine& engine = process_engine();
  const Span span = array.span();
  const auto words = [] { return std::string("looking for the allocation of external memory"); };
  const driver::Memory::Borrowed memory = driver::doing(
      engine, words, array.device, [&] { return (engine.memory.*find)(address, span.end, array.device); });
  if (memory.allocated_bytes < span.end)
    raise(error_types.argument_value, "external: " + describe(array) + " reaches beyond the " +
                                          std::to_string(memory.allocated_bytes) + " bytes of its allocation");
  array.buffer = memory.buffer;
  array.offset = memory.offset;
}

Array array_of_others(std::vector<std::int64_t> shape, DType dtype, std::optional<std::vector<std::int64_t>> strides,
                      std::int32_t device) {
  Array array{BufferRef(), 0, device, dtype, std::move(shape)};
  if (strides) array.strides = std::move(*strides);
  return array;
}

void come_after(const Array& array, const std::optional<Tick>& ready) {
  if (ready) array.each_piece([&](Span piece) { array.buffer->hazards.commit_of_others(piece, *ready); });
  array.buffer->hazards.forget_passed(process_engine().timeline);
}

// The driver's handle of another process' thing, from its bytes.
template <class Handle>
Handle handle_of(const nb::bytes& bytes) {
  Handle handle{};
  if (bytes.size() != sizeof handle.reserved)
    raise(error_types.argument_value, "open_ipc: a handle has " + std::to_string(sizeof handle.reserved) +
                                          " bytes, not " + std::to_string(bytes.size()));
  std::memcpy(handle.reserved, bytes.c_str(), sizeof handle.reserved);
  return handle;
}

// The buffer of a variable of a module; made behind all that the device has been given to do, which may use it too.
BufferRef buffer_of_variable(ModuleMemory& memory, std::int32_t device, std::uint64_t address, std::uint64_t size_bytes,
                             bool is_constant) {
  Engine& engine = process_engine();
  Engine::Submission submission(engine);
  if (const BufferRef* known = memory.find(device, address)) return *known;
  driver::ContextScope scope(engine);
  scope.bind(device);
  const StreamIndex ready = engine.streams.aside(device);
  for (std::size_t i = 0; i < engine.stream_count(); ++i) {
    const auto stream = static_cast<StreamIndex>(i);
    const driver::StreamState& state = engine.stream(stream);
    // Also one that was closed, and still has work.
    if (state.device == device && state.mark && stream != ready)
      driver::check(engine.streams.wait(ready, stream), "cuStreamWaitEvent");
  }
  auto buffer = std::make_unique<Buffer>(size_bytes, device);
  buffer->address = address;
  buffer->hazards.commit({0, size_bytes}, true, engine.timeline.advance(ready, 1, true));
  BufferRef made(std::move(buffer));
  memory.add(made, !is_constant);
  return made;
}

}  // namespace

void lend(Array& array, nb::object owner, Lender* lender) {
  array.loan = std::make_shared<KeptLoan>(std::move(owner), lender, array.buffer, array.span());
}

nb::object adopt(std::uint64_t address, Array array, nb::object owner, bool is_read_only) {
  Engine& engine = process_engine();
  const driver::InCall& call = *driver::InCall::current();
  // A framework's allocator gives the same memory out again and again.
  find_memory(array, address, &driver::Memory::borrow_again);
  std::optional<Tick> ready;  // in a capture, the graph orders it
  if (!call.is_captured) ready = {call.stream, engine.timeline.submitted(call.stream) + 1};
  come_after(array, ready);
  lend(array, std::move(owner));
  if (is_read_only) array.group = claim(array, ClaimKind::read_only, "its owner lends it for reading");
  return dataflow::make_array(engine.hooks.device_array, std::move(array));
}

void bind_ownership(nb::module_& module) {
  module.def("close_array", [](Array& array) {
    if (!array.buffer) return;
    if (array.buffer->enclosure)
      raise(error_types.capture, "close: " + describe(array) + " is inside the graph made at " +
                                     array.buffer->enclosure->place + ", which owns its memory; close the graph");
    array.buffer.reset();
    array.group.reset();
    array.loan.reset();
    array.ended = "was closed at " + place_of_caller();
  });
  // Another handle of the same class, both of them for reading.
  module.def("share_array", [](nb::handle_t<Array> object) {
    Array& array = *nb::inst_ptr<Array>(object);
    require(array, "share",
            [&](Claims& claims, const Region& region) { return claims.against_share(region, array.group.get()); });
    if (!is_shared_handle(array)) array.group = claim(array, ClaimKind::shared, place_of_caller());
    return dataflow::make_array(object.type(), Array(array));
  });
  module.def("unwrap_array", [](Array& array) {
    if (!array.buffer) raise_ended(array, "unwrap");
    process_engine().lending.take_back();  // other libraries may be done with it
    if (!is_shared_handle(array)) {
      require(array, "unwrap", [&](Claims& claims, const Region& region) {
        return claims.against_access(region, true, array.group.get());
      });
      raise(error_types.ownership, "unwrap: " + describe(array) + " is not shared; it is owned already");
    }
    const long others = array.group.use_count() - 1;
    if (others)
      raise(error_types.ownership, "unwrap: " + describe(array) + " was shared at " +
                                       claims_of(array).of(array.group.get())->place + ", and " +
                                       std::to_string(others) +
                                       (others == 1 ? " other handle of it is" : " other handles of it are") +
                                       " left (views count too); close them first");
    const GroupRef group = array.group;
    claims_of(array).remove(group.get());
    array.group = group->parent;
  });
  // A handle in the place of this one, whose use ends.
  module.def("move_array", [](nb::handle_t<Array> object) {
    Array& array = *nb::inst_ptr<Array>(object);
    require(array, "move", [&](Claims& claims, const Region& region) {
      return claims.against_transition(region, false, array.group.get());
    });
    const std::string place = place_of_caller();
    Array moved(array);
    moved.group = claim(array, ClaimKind::moved, place);
    array.buffer.reset();
    array.group.reset();
    array.loan.reset();
    array.ended = "was moved at " + place;
    return dataflow::make_array(object.type(), std::move(moved));
  });
  module.def("partition_array", [](nb::handle type, Array& array, std::vector<std::int64_t> tile) {
    require(array, "partition", [&](Claims& claims, const Region& region) {
      return claims.against_transition(region, true, array.group.get());
    });
    if (array.is_host())
      raise(error_types.argument_type,
            "partition: " + describe(array) + " was given; only arrays on a device have partitions");
    if (tile.size() != array.shape.size() || tile.empty())
      raise(error_types.argument_value, "partition: a tile has as many axes as the array, at least one; " +
                                            describe_shape(tile) + " was given for " + describe(array));
    for (const std::int64_t extent : tile)
      if (extent < 1)
        raise(error_types.argument_value,
              "partition: the extents of a tile are 1 or more; " + describe_shape(tile) + " was given");
    Array partition(array);
    partition.tile = std::move(tile);
    partition.group = claim(array, ClaimKind::partitioned, place_of_caller());
    return dataflow::make_array(type, std::move(partition));
  });
  module.def("unpartition_array", [](Array& partition) {
    if (!partition.buffer) raise_ended(partition, "unpartition");
    claims_of(partition).remove(partition.group.get());
    partition.buffer.reset();
    partition.group.reset();
    partition.loan.reset();
    partition.ended = "was unpartitioned at " + place_of_caller();
  });
  // Raises where an operation could not use the array so.
  module.def("check_usable", [](const Array& array, bool writes, const std::string& where) {
    check_usable(array, writes, [&] { return where; });
  });

  module.def("tile_of", [](const Array& partition) {
    nb::object tile = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(partition.tile.size())));
    for (std::size_t i = 0; i < partition.tile.size(); ++i)
      PyTuple_SET_ITEM(tile.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(partition.tile[i]));
    return tile;
  });
  // How it stands with an array, such as "shared at file:line"; empty where it may be written.
  module.def("story_of", [](const Array& array) -> std::string {
    if (!array.buffer) return array.ended.empty() ? "was closed" : array.ended;
    if (!array.buffer->claims) return "";
    const Claim* claim = array.buffer->claims->against_access(array.region(), true, array.group.get());
    if (!claim) return "";
    switch (claim->kind) {
      case ClaimKind::shared:
        return "shared at " + claim->place;
      case ClaimKind::partitioned:
        return "partitioned at " + claim->place;
      case ClaimKind::moved:
        return "moved at " + claim->place;
      case ClaimKind::read_only:
        break;
    }
    return "read-only: " + claim->place;
  });

  // A variable of a loaded module, which `owner` keeps loaded.
  module.def("variable_array", [](nb::handle type, ModuleMemory& memory, std::int32_t device, std::uint64_t address,
                                  std::uint64_t size_bytes, bool is_constant, std::vector<std::int64_t> shape,
                                  DType dtype, nb::object owner) {
    return driver::doing(process_engine(), std::string("ordering a module's variable after earlier work"), device, [&] {
      Array array{buffer_of_variable(memory, device, address, size_bytes, is_constant), 0, device, dtype,
                  std::move(shape)};
      lend(array, std::move(owner));
      return dataflow::make_array(type, std::move(array));
    });
  });

  // An array's memory and an event behind its users, as bytes for another process; how much it will open, and where the
  // array begins there.
  module.def("export_array", [](const Array& asked) {
    Engine& engine = process_engine();
    const Array array(asked);  // NOLINT(performance-unnecessary-copy-initialization): who else holds it may close it
    if (!array.buffer) raise_ended(array, "ipc_handle");
    return driver::doing(
        engine, [&] { return "lending " + describe(array) + " to another process"; }, array.device,
        [&] {
          const Engine::Submission submission(engine);
          engine.lending.admit(*array.buffer, array.span(), true);
          const driver::Memory::Exported exported = engine.memory.export_bytes(*array.buffer, array.span());
          return nb::make_tuple(nb::bytes(exported.memory.reserved, sizeof exported.memory.reserved),
                                nb::bytes(exported.event.reserved, sizeof exported.event.reserved),
                                exported.block_bytes, array.offset);
        });
  });
  // `keeper` is kept until the array and its views are gone and the device has passed all that used them here.
  module.def(
      "open_array",
      [](nb::handle type, const nb::bytes& memory, const nb::bytes& event, std::uint64_t block_bytes,
         std::uint64_t offset, std::vector<std::int64_t> shape, DType dtype,
         std::optional<std::vector<std::int64_t>> strides, std::int32_t device, bool is_read_only, nb::object keeper) {
        Engine& engine = process_engine();
        Array array{BufferRef(), offset, device, dtype, std::move(shape)};
        if (strides) array.strides = std::move(*strides);
        const Span span = array.span();
        if (span.end > block_bytes)
          raise(error_types.argument_value, "open_ipc: " + describe(array) + " reaches beyond the " +
                                                std::to_string(block_bytes) + " bytes that its handle opens");
        Engine::Submission submission(engine);
        driver::doing(engine, std::string("opening an array of another process"), device, [&] {
          array.buffer = engine.memory.open(handle_of<CUipcMemHandle>(memory), block_bytes, device);
          const StreamIndex ready = engine.streams.aside(device);
          engine.lending.admit(*array.buffer, span, true);
          engine.streams.order(ready, *array.buffer, span);  // where it was opened before, and is still in use
          const auto behind_users = driver::Event::open(engine.devices, device, handle_of<CUipcEventHandle>(event));
          driver::check(engine.now.wait(engine.stream(ready).handle, behind_users->handle()), "cuStreamWaitEvent");
          array.buffer->hazards.commit(span, true, engine.timeline.advance(ready, 1, true));
        });
        lend(array, std::move(keeper));
        if (is_read_only) array.group = claim(array, ClaimKind::read_only, "its owner lends it for reading");
        return dataflow::make_array(type, std::move(array));
      },
      "type"_a, "memory"_a, "event"_a, "block_bytes"_a, "offset"_a, "shape"_a, "dtype"_a, "strides"_a.none(),
      "device"_a, "is_read_only"_a, "keeper"_a.none());

  // What somebody else lends. His work on it so far ends where `theirs`, a stream of his, ends now; or else on `relay`,
  // a stream of ours that he ordered behind it; or there is none.
  module.def(
      "borrow_array",
      [](nb::handle type, std::uint64_t address, std::vector<std::int64_t> shape, DType dtype,
         std::optional<std::vector<std::int64_t>> strides, std::int32_t device, nb::object owner, bool is_read_only,
         std::optional<std::uintptr_t> theirs, std::optional<StreamId> relay) {
        Engine& engine = process_engine();
        Array array = array_of_others(std::move(shape), dtype, std::move(strides), device);
        find_memory(array, address, &driver::Memory::borrow);
        const std::optional<Tick> ready =
            driver::doing(engine, std::string("ordering external memory after its owner's work"), device, [&] {
              if (theirs) return std::optional(engine.relays.behind(reinterpret_cast<CUstream>(*theirs), device));
              if (relay) return std::optional(engine.streams.pass(slot_of(*relay)));
              return std::optional<Tick>();
            });
        come_after(array, ready);
        lend(array, std::move(owner));
        if (is_read_only) array.group = claim(array, ClaimKind::read_only, "its owner lends it for reading");
        return dataflow::make_array(type, std::move(array));
      },
      "type"_a, "address"_a, "shape"_a, "dtype"_a, "strides"_a.none(), "device"_a, "owner"_a, "is_read_only"_a,
      "theirs"_a.none(), "relay"_a.none());
  // What a function of `call` that runs now has made on its stream: there when its work is, of which no more comes.
  module.def(
      "adopt_array",
      [](std::uint64_t address, std::vector<std::int64_t> shape, DType dtype,
         std::optional<std::vector<std::int64_t>> strides, nb::object owner, bool is_read_only) {
        const std::int32_t device = driver::InCall::current()->device;
        return adopt(address, array_of_others(std::move(shape), dtype, std::move(strides), device), std::move(owner),
                     is_read_only);
      },
      "address"_a, "shape"_a, "dtype"_a, "strides"_a.none(), "owner"_a, "is_read_only"_a = false);
}

}  // namespace aiocuda
