// A kernel's signature and the operation that launches it.
//
// Always true: what can be checked when a launch is built, is; what an operation yields is checked
// before the launch is submitted, by the same function.
#pragma once
#include <string>
#include <vector>

#include "operation.hpp"
#include "packing.hpp"

namespace aiocuda::dataflow {

struct Param {
  ParamKind kind;
  DType dtype;  // of an array's elements; any_dtype for void*
  bool writes;
  std::string name;
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim3 grid, block;
  Dim3 cluster{0, 0, 0};  // all 0: none asked for
  std::uint32_t shared_bytes = 0;
  bool cooperative = false;
  bool empty = false;     // no thread: nothing is launched
};

struct Signature {
  std::string kernel;
  std::vector<Param> params;
  std::vector<std::uint32_t> outputs;  // the parameters it writes
  std::uint32_t max_threads = 1024;    // a block

  // The driver floor's own, by device ordinal: the loaded function and what it was configured for.
  struct Loaded {
    void* function = nullptr;
    std::uint32_t shared_limit_bytes = 48 * 1024;  // more must be asked for, on every device since Volta
  };
  std::vector<Loaded> loaded;

  std::string where(std::size_t i) const {
    return kernel + ": argument " + std::to_string(i + 1) + " (" + params[i].name + ")";
  }
};

inline std::string expected_array(const Param& param) {
  return param.dtype == any_dtype ? "a device array" : "a device array of " + dtypes[param.dtype].name;
}

// `device` becomes the device of the first array, and stays the one that all others must be on.
inline void check_array(const Signature& signature, std::size_t i, const Array& array, std::int32_t& device) {
  const Param& param = signature.params[i];
  if (array.dtype != param.dtype && param.dtype != any_dtype)
    raise(error_types.argument_type, signature.where(i) + ": " + expected_array(param) + " is expected, " +
                                         describe(array) + " was given; convert it, or change the kernel");
  if (array.is_host())
    raise(error_types.argument_type, signature.where(i) + ": " + expected_array(param) + " is expected, " +
                                         describe(array) + " was given; bring it to the device with to_device()");
  if (!array.buffer)
    raise(error_types.closed, signature.where(i) + ": the array was closed before this use of it");
  if (device == unknown_ordinal) device = array.device;
  if (array.device != device)
    raise(error_types.device_mismatch, signature.where(i) + " is on device " + std::to_string(array.device) +
                                           ", another array of this launch on device " + std::to_string(device) +
                                           "; bring one over with to_device(array, device=...)");
}

// The same for an operation of which only the specification is known.
inline void check_spec(const Signature& signature, std::size_t i, const Spec& spec, std::int32_t& device) {
  const Param& param = signature.params[i];
  if (spec.yields == Yields::unknown) return;
  if (param.kind != ParamKind::array) {
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
  if (spec.device == unknown_ordinal) return;
  if (device == unknown_ordinal) device = spec.device;
  if (spec.device != device)
    raise(error_types.device_mismatch, signature.where(i) + " is an operation on device " + std::to_string(spec.device) +
                                           ", another array of this launch is on device " + std::to_string(device) +
                                           "; bring one over with to_device(array, device=...)");
}

// An argument as bound: the object (owned) and, for what is known already, the word to pass.
struct Argument {
  PyObject* object;
  std::uint64_t word;
};
inline constexpr std::size_t inline_arguments = 12;

struct LaunchOp final : Op {
  LaunchOp(nb::handle kernel_object, Signature& kernel_signature)
      : Op(Kind::launch), signature(kernel_signature), kernel_(nb::borrow(kernel_object)) {
    if (signature.params.size() > inline_arguments) {
      more_ = std::make_unique<Argument[]>(signature.params.size());
      arguments = more_.get();
    }
  }
  ~LaunchOp() override { release(); }

  Signature& signature;        // lives in the kernel, which this holds
  LaunchShape shape;
  std::uint32_t bound = 0;     // arguments that are held
  bool consumes = false;       // some argument is an operation
  std::uint64_t operations = 0;  // which, of the first 64
  Argument inline_[inline_arguments];
  Argument* arguments = inline_;

  nb::handle kernel() const { return kernel_; }

  bool is_operation(std::size_t i) const {
    return i < 64 ? (operations >> i & 1) != 0 : consumes && is_op(arguments[i].object);
  }

  void bind(nb::handle value, std::int32_t& device) {
    const std::size_t i = bound;
    const Param& param = signature.params[i];
    Argument& into = arguments[i];
    auto where = [&] { return signature.where(i); };
    // What is most likely is asked first: this is built once for each launch.
    if (param.kind == ParamKind::array) {
      if (const Array* array = as_array(value)) {
        check_array(signature, i, *array, device);
        into.word = array->address;
      } else if (const Op* op = as_op(value)) {
        check_spec(signature, i, op->spec, device);
        note_operation(i);
      } else {
        raise(error_types.argument_type, where() + ": " + expected_array(param) + " is expected, " +
                                             nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(value.ptr())).attr("__name__"))) +
                                             " was given; bring host data to the device with to_device()");
      }
    } else if (const Op* op = PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr()) ? nullptr : as_op(value)) {
      check_spec(signature, i, op->spec, device);
      note_operation(i);
    } else {
      into.word = pack_scalar(value, param.kind, where);
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
  void note_operation(std::size_t i) {
    consumes = true;
    if (i < 64) operations |= std::uint64_t{1} << i;
  }

  void release() {
    while (bound) {
      PyObject* object = arguments[--bound].object;
      if (is_operation(bound)) {
        let_go(nb::steal(object));
      } else {
        Py_DECREF(object);
      }
    }
  }

  std::unique_ptr<Argument[]> more_;
  nb::object kernel_;  // outlives the references into it; kept after the launch, for its name
};

}  // namespace aiocuda::dataflow
