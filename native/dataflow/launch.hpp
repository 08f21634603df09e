// A kernel's signature and the operation that launches it.
//
// Always true: what can be checked when a launch is built, is; what an operation yields is checked
// before the launch is submitted, by the same function.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "access.hpp"
#include "operation.hpp"
#include "packing.hpp"

namespace aiocuda::dataflow {

struct Param {
  ParamKind kind;
  DType dtype;  // of an array's elements; any_dtype for void*
  bool writes;
  std::string name;
  std::uint32_t rank = 0;        // of a view or a partition
  std::uint32_t width = 1;       // numbers in one of its items, such as 4 of a float4: the array's last axis
  std::uint32_t size_bytes = 0;  // of a struct
  nb::object pack{};             // of a struct: gives a value's bytes, or says what is wrong with it
  std::uint32_t alignment = 1;   // of an array's items: a power of two; the address of each is a multiple of it

  std::size_t axes() const { return rank + (width > 1); }  // of the array

  // Of a view: where, shape and strides; of a partition, also the shape of a tile (aiocuda/tile.cuh).
  // Of a struct: as many as it has bytes.
  std::uint32_t words() const {
    switch (kind) {
      case ParamKind::view:
        return 1 + 2 * rank;
      case ParamKind::partition:
        return 1 + 3 * rank;
      case ParamKind::structure:
        return (size_bytes + 7) / 8;
      default:
        return 0;
    }
  }
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

// As the caller gives them, before they are known to fit.
struct Extents {
  std::array<std::uint64_t, 3> of{1, 1, 1};
  int rank = 0;  // 0: not given
};

// Of a parameter in a list of words.
inline std::uint32_t words_of(const Param& param) { return std::max(param.words(), 1u); }

struct LaunchShape {
  Dim3 grid, block;
  Dim3 cluster{0, 0, 0};  // all 0: none asked for
  std::uint32_t shared_bytes = 0;
  bool cooperative = false;
  bool empty = false;               // no thread: nothing is launched
  bool by_partition = false;        // the grid will be the partition's
  bool block_by_partition = false;  // the block is the partition's tile; its extents are 0 until that is known
  Extents threads{};                // the caller's, from which the grid was made; of rank 0 if the caller gave a grid
};

// The variables of a kernel's module that somebody has as arrays. Whichever of them a launch looks at, nobody says: so
// it reads all the constants, and may write all others.
class ModuleMemory {
 public:
  struct Variable {
    BufferRef buffer;
    bool writes;
  };

  const BufferRef* find(std::int32_t device, std::uint64_t address) const {
    for (const Variable& each : variables_)
      if (each.buffer->device == device && each.buffer->address == address) return &each.buffer;
    return nullptr;
  }
  void add(BufferRef buffer, bool writes) { variables_.push_back({std::move(buffer), writes}); }

  template <class F>
  void each(std::int32_t device, F&& f) const {
    for (const Variable& each : variables_)
      if (each.buffer->device == device) f(each);
  }

 private:
  std::vector<Variable> variables_;
};

struct Signature {
  std::string kernel;
  const std::string* name = nullptr;  // the same, kept for good
  std::vector<Param> params;
  std::vector<std::uint32_t> outputs;  // the parameters it writes
  std::uint32_t max_threads = 1024;    // a block
  std::uint32_t words = 0;             // of all views, partitions and structs
  bool has_partition = false;
  std::shared_ptr<const ModuleMemory> memory;

  // The driver floor's own, by device ordinal: the loaded function, what it is set for, and what the device allows it.
  struct Loaded {
    void* function = nullptr;
    std::uint32_t shared_limit_bytes = 0;  // dynamic; more must be asked for
    std::uint32_t shared_most_bytes = 0;   // that can be asked for
    std::uint32_t max_threads = 0;         // of a block
    std::uint32_t multiprocessors = 0;
    bool is_cooperative = false;  // can the device run a grid's blocks all at once?
    bool has_clusters = false;
    BufferRef image{};  // that the function is in
  };
  std::vector<Loaded> loaded;

  std::string where(std::size_t i) const {
    return kernel + ": argument " + std::to_string(i + 1) + " (" + params[i].name + ")";
  }
};

inline std::string expected_array(const Param& param) {
  const std::string dtype = param.dtype == any_dtype ? "" : " of " + dtypes[param.dtype].name;
  if (!is_scalar(param.kind) && param.kind != ParamKind::array)
    return (param.kind == ParamKind::partition ? "a partition" : "a device array") + dtype + " with " +
           std::to_string(param.axes()) + " axes" +
           (param.width > 1 ? ", the last of " + std::to_string(param.width) + " items in one piece" : "");
  return "a device array" + dtype;
}

// The device of a launch: of what it writes, else of what it reads. Managed memory alone, which every device reaches,
// leaves it free to go elsewhere.
struct Home {
  std::int32_t device = unknown_ordinal;
  std::size_t argument = 0;
  bool is_free = false;

  // `put`: where the launch was put, if anywhere.
  std::int32_t or_where_put(std::int32_t put) const {
    return put != unknown_ordinal && (is_free || device == unknown_ordinal) ? put : device;
  }
};

[[gnu::noinline]] inline void meet_another(const Signature& signature, std::size_t i, std::int32_t device,
                                           bool is_managed, Home& home) {
  if (device == unknown_ordinal) return;
  if (home.is_free && !is_managed) {
    home = {device, i, is_managed};
    return;
  }
  if (device == home.device || is_managed) return;
  // The written array stays where it is.
  const bool stays = signature.params[i].writes && !signature.params[home.argument].writes;
  const std::size_t moved = stays ? home.argument : i, kept = stays ? i : home.argument;
  const std::string place = std::to_string(stays ? device : home.device);
  raise(error_types.device_mismatch,
        signature.where(moved) + " is on device " + std::to_string(stays ? home.device : device) + ", argument " +
            std::to_string(kept + 1) + " (" + signature.params[kept].name + ")" +
            (signature.params[kept].writes ? ", which it writes," : "") + " on device " + place + "; bring " +
            signature.params[moved].name + " over with .to(" + place + ")");
}
inline void meet(const Signature& signature, std::size_t i, std::int32_t device, bool is_managed, Home& home) {
  if (device == home.device && !home.is_free) [[likely]]
    return;
  if (home.device == unknown_ordinal && device != unknown_ordinal) {  // the first one
    home = {device, i, is_managed};
    return;
  }
  meet_another(signature, i, device, is_managed, home);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void raise_misfit(const Signature& signature, std::size_t i,
                                                                const Array& array, const char* advice) {
  raise(error_types.argument_type, signature.where(i) + ": " + expected_array(signature.params[i]) + " is expected, " +
                                       describe(array) + " was given; " + advice);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void raise_misaligned(const Signature& signature, std::size_t i,
                                                                    const Array& array) {
  const Param& param = signature.params[i];
  raise(error_types.argument_value, signature.where(i) + ": the address of each item must be a multiple of " +
                                        std::to_string(param.alignment) + " bytes; " +
                                        describe_misalignment(array, param.alignment, param.rank) +
                                        "; give a copy of it, with dup(), or a view that begins elsewhere");
}

// One thing may have changed since an array was bound: whether it may be used. Its kind stays.
inline void check_array_again(const Signature& signature, std::size_t i, const Array& array, Home& home) {
  if (!is_free_to_use(array)) check_usable(array, signature.params[i].writes, [&] { return signature.where(i); });
  meet(signature, i, array.device, array.is_managed(), home);
}

[[gnu::noinline]] inline void check_any_array(const Signature& signature, std::size_t i, const Array& array,
                                              Home& home) {
  const Param& param = signature.params[i];
  auto expected = [&](const char* advice) { raise_misfit(signature, i, array, advice); };
  if (array.dtype != param.dtype && param.dtype != any_dtype) expected("convert it, or change the kernel");
  if (array.is_host()) expected("bring it to the device with to_device()");
  check_usable(array, param.writes, [&] { return signature.where(i); });
  if (param.kind == ParamKind::array) {
    if (array.is_partition()) expected("give the array itself, or take an aiocuda::Partition");
    if (!array.is_contiguous())
      expected(
          "it is strided, and a pointer knows no strides: take an aiocuda::View, or give a copy of it, with dup()");
  } else {
    if (array.is_partition() != (param.kind == ParamKind::partition))
      expected(array.is_partition() ? "give the array itself, or take an aiocuda::Partition"
                                    : "give array.partition(tile shape)");
    if (array.shape.size() != param.axes()) expected("change the number of axes with reshape(), or the kernel");
    if (param.width > 1 && (array.shape.back() != param.width ||
                            array.stride(param.rank) != static_cast<std::int64_t>(dtypes[array.dtype].size_bytes) ||
                            (array.is_partition() && array.tile.back() != param.width)))
      expected("the kernel's items are that many numbers each");
  }
  // A GPU takes an address that is not a multiple of what it loads for a fault, and is lost.
  if (array.misalignment(param.alignment, param.rank) && array.size()) raise_misaligned(signature, i, array);
  meet(signature, i, array.device, array.is_managed(), home);
}

inline void check_array(const Signature& signature, std::size_t i, const Array& array, Home& home) {
  const Param& param = signature.params[i];
  // A plain array for a pointer is what is most likely; it needs few looks.
  const bool is_plain = param.kind == ParamKind::array && array.is_contiguous() && !array.is_partition() &&
                        (array.dtype == param.dtype || param.dtype == any_dtype) && !array.is_host() &&
                        is_free_to_use(array) && !((array.buffer->place() + array.offset) & (param.alignment - 1));
  if (!is_plain) return check_any_array(signature, i, array, home);
  meet(signature, i, array.device, array.is_managed(), home);
}

// The same for an operation of which only the specification is known.
[[gnu::noinline]] inline void check_spec(const Signature& signature, std::size_t i, const Spec& spec, Home& home) {
  const Param& param = signature.params[i];
  if (spec.yields == Yields::unknown) return;
  if (is_scalar(param.kind)) {
    if (spec.yields != Yields::host_value)
      raise(error_types.argument_type, signature.where(i) + ": " + with_article(param.kind) +
                                           " is expected, an operation that yields an array was given");
    return;
  }
  if (spec.yields != Yields::device_array)
    raise(error_types.argument_type, signature.where(i) + ": " + expected_array(param) +
                                         " is expected, an operation that yields a value in host memory was given; "
                                         "bring it to the device with to_device()");
  if (spec.dtype != param.dtype && param.dtype != any_dtype && spec.dtype != any_dtype)
    raise(error_types.argument_type, signature.where(i) + ": " + expected_array(param) +
                                         " is expected, an operation that yields " + dtypes[spec.dtype].name +
                                         " was given; convert it, or change the kernel");
  meet(signature, i, spec.device, spec.is_managed, home);
}

// An argument as bound: the object (owned) and, for what is known already, the word to pass.
struct Argument {
  PyObject* object;
  std::uint64_t word;
};
// With so many a launch fits into the blocks of 512 bytes that Python's allocator keeps.
inline constexpr std::size_t inline_arguments = 8;

struct LaunchOp final : Op {
  LaunchOp(nb::handle kernel_object, Signature& kernel_signature)
      : Op(Kind::launch), signature(kernel_signature), kernel_(nb::borrow(kernel_object)) {
    if (signature.params.size() > inline_arguments) {
      more_ = std::make_unique<Argument[]>(signature.params.size());
      arguments = more_.get();
    }
    if (signature.words) words_ = std::make_unique<std::uint64_t[]>(signature.words);
  }
  ~LaunchOp() override { release(); }

  Signature& signature;  // lives in the kernel, which this holds
  LaunchShape shape;
  std::uint32_t bound = 0;       // arguments that are held
  bool consumes = false;         // some argument is an operation
  std::uint64_t operations = 0;  // which, of the first 64
  Argument inline_[inline_arguments];
  Argument* arguments = inline_;

  nb::handle kernel() const { return kernel_; }

  bool is_operation(std::size_t i) const {
    return i < 64 ? (operations >> i & 1) != 0 : consumes && is_op(arguments[i].object);
  }

  // The bytes from which the driver copies the argument.
  void* word_of(std::size_t i) {
    return signature.words && signature.params[i].words() ? static_cast<void*>(words_.get() + arguments[i].word)
                                                          : &arguments[i].word;
  }

  void pack(std::size_t i, const Array& array) {
    if (signature.params[i].kind != ParamKind::array) return pack_view(i, array);
    arguments[i].word = array.address();
  }
  [[gnu::noinline]] void pack_view(std::size_t i, const Array& array) {
    const Param& param = signature.params[i];
    std::uint64_t* into = words_.get() + arguments[i].word;
    *into++ = array.address();
    for (std::size_t axis = 0; axis < param.rank; ++axis) *into++ = static_cast<std::uint64_t>(array.shape[axis]);
    for (std::size_t axis = 0; axis < param.rank; ++axis) *into++ = static_cast<std::uint64_t>(array.stride(axis));
    if (!array.is_partition()) return;
    for (std::size_t axis = 0; axis < param.rank; ++axis) *into++ = static_cast<std::uint64_t>(array.tile[axis]);
  }

  void pack_value(std::size_t i, nb::handle value) {
    // The most likely numbers of all: sizes.
    if (signature.params[i].kind == ParamKind::u32 && PyLong_CheckExact(value.ptr())) {
      const unsigned long long word = PyLong_AsUnsignedLongLong(value.ptr());
      if (word <= UINT32_MAX) [[likely]] {
        arguments[i].word = word;
        return;
      }
      PyErr_Clear();
    }
    pack_any_value(i, value);
  }
  [[gnu::noinline]] void pack_any_value(std::size_t i, nb::handle value) {
    const Param& param = signature.params[i];
    if (param.kind != ParamKind::structure) {
      arguments[i].word = pack_scalar(value, param.kind, [&] { return signature.where(i); });
      return;
    }
    const auto bytes = nb::cast<nb::bytes>(param.pack(signature.where(i), value));
    std::memcpy(words_.get() + arguments[i].word, bytes.c_str(), std::min<std::size_t>(bytes.size(), param.size_bytes));
  }

  void bind(nb::handle value, Home& home) {
    const std::size_t i = bound;
    const Param& param = signature.params[i];
    Argument& into = arguments[i];
    if (const std::uint32_t words = signature.words ? param.words() : 0) {
      into.word = words_bound_;
      words_bound_ += words;
    }
    // The most likely kind comes first, because this runs once for each launch.
    if (!is_scalar(param.kind)) {
      const Array* array = as_array(value);
      if (!array) return bind_other(value, home);
      check_array(signature, i, *array, home);
      pack(i, *array);
      has_tensors = has_tensors || array->tensor();
    } else if (PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr()) || !is_op(value.ptr())) {
      pack_value(i, value);
    } else {
      return bind_other(value, home);
    }
    into.object = value.inc_ref().ptr();
    ++bound;
  }

  void release_arguments() override { release(); }
  int visit_arguments(visitproc visit, void* arg) override {
    Py_VISIT(kernel_.ptr());
    for (std::uint32_t i = 0; i < bound; ++i) Py_VISIT(arguments[i].object);
    return 0;
  }

 private:
  // An operation, or an array of another library.
  [[gnu::noinline]] void bind_other(nb::handle value, Home& home) {
    const std::size_t i = bound;
    if (const Op* op = as_op(value)) {
      check_spec(signature, i, op->spec, home);
      note_operation(i);
      has_tensors = has_tensors || (op->has_tensors && !is_scalar(signature.params[i].kind));
      arguments[i].object = value.inc_ref().ptr();
    } else {
      arguments[i].object = bind_tensor(value, home).release().ptr();
    }
    ++bound;
  }
  // An array of another library, as it is.
  [[gnu::noinline]] nb::object bind_tensor(nb::handle value, Home& home) {
    const std::size_t i = bound;
    nb::object tensor = tensor_of(value, [&] { return signature.where(i); });
    if (!tensor.is_valid())
      raise(error_types.argument_type,
            signature.where(i) + ": " + expected_array(signature.params[i]) + " is expected, " +
                nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(value.ptr())).attr("__name__"))) +
                " was given; bring host data to the device with to_device()");
    const Array& array = *as_array(tensor);
    check_array(signature, i, array, home);
    pack(i, array);
    has_tensors = has_tensors || array.tensor();
    return tensor;
  }
  void note_operation(std::size_t i) {
    consumes = true;
    if (i < 64) operations |= std::uint64_t{1} << i;
  }

  void release() {
    while (bound) {
      PyObject* object = arguments[--bound].object;
      if (consumes && is_operation(bound)) {
        let_go(nb::steal(object));
      } else {
        Py_DECREF(object);
      }
    }
  }

  std::unique_ptr<Argument[]> more_;
  std::unique_ptr<std::uint64_t[]> words_;  // of views, partitions and structs, one after another
  std::uint64_t words_bound_ = 0;
  nb::object kernel_;  // outlives the references into it; kept after the launch, for its name
};

// Calls `f(argument)` for all that an operation takes and that may be operations, from left to right.
template <class F>
void each_argument(Op& op, F&& f) {
  switch (op.kind) {
    case Kind::launch: {
      auto& launch = static_cast<LaunchOp&>(op);
      if (launch.consumes)
        for (std::uint32_t i = 0; i < launch.bound; ++i)
          if (launch.is_operation(i)) f(nb::handle(launch.arguments[i].object));
      return;
    }
    case Kind::create:
      f(nb::handle(static_cast<CreateOp&>(op).like));
      return;
    case Kind::fill:
      f(nb::handle(static_cast<FillOp&>(op).destination));
      return;
    case Kind::copy:
      f(nb::handle(static_cast<CopyOp&>(op).destination));
      f(nb::handle(static_cast<CopyOp&>(op).source));
      return;
    case Kind::call:
      if (static_cast<CallOp&>(op).inner.is_valid()) {
        f(nb::handle(static_cast<CallOp&>(op).inner));
      } else {
        f(nb::handle(static_cast<CallOp&>(op).input));
      }
      return;
    case Kind::gather:
      for (const nb::object& item : static_cast<GatherOp&>(op).items) f(nb::handle(item));
      return;
    case Kind::pick:
      f(nb::handle(static_cast<PickOp&>(op).source));
      return;
    case Kind::replay:
      if (static_cast<ReplayOp&>(op).consumes)
        for (const ReplayOp::Binding& binding : static_cast<ReplayOp&>(op).bindings) f(nb::handle(binding.value));
      return;
    case Kind::foreign:
      for (const nb::object& argument : static_cast<ForeignOp&>(op).arguments) f(nb::handle(argument));
      for (const ForeignOp::Access& access : static_cast<ForeignOp&>(op).accesses) f(nb::handle(access.array));
      return;
  }
}

}  // namespace aiocuda::dataflow
