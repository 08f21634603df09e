#include "kernel.hpp"

#include <cxxabi.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../dataflow/shape.hpp"
#include "../dataflow/story.hpp"
#include "../driver/calls.hpp"
#include "member_types.hpp"
#include "process.hpp"
#include "spare_objects.hpp"

namespace aiocuda {
namespace {
using namespace dataflow;
using namespace nb::literals;

struct KernelObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* weak_references;
  PyObject* op_class;    // the Python class of the operations it builds
  Signature* signature;  // owned; offsetof needs a standard layout, which a unique_ptr does not promise
};

struct Keywords {
  PyObject *threads, *grid, *block, *shared_memory, *cluster, *cooperative;
};
Keywords keywords;

// A value as messages show it; a class whose repr() fails is named all the same.
std::string shown(PyObject* value) {
  const nb::object text = nb::steal(PyObject_Repr(value));
  if (text.is_valid()) return nb::cast<std::string>(text);
  PyErr_Clear();
  return std::string("a ") + Py_TYPE(value)->tp_name;
}

[[noreturn, gnu::cold]] void refuse_name(const Signature& signature, PyObject* kernel, PyObject* name);

std::uint64_t read_extent(const Signature& signature, const char* name, PyObject* value) {
  PyObject* index = PyNumber_Index(value);
  if (!index) {
    PyErr_Clear();
    raise(error_types.argument_type,
          signature.kernel + ": " + name + " takes an int or a tuple of up to three, not " + shown(value));
  }
  const nb::object number = nb::steal(index);
  const unsigned long long extent = PyLong_AsUnsignedLongLong(number.ptr());
  if (extent == static_cast<unsigned long long>(-1) && PyErr_Occurred()) {
    PyErr_Clear();
    raise(error_types.launch, signature.kernel + ": " + name + "=" + shown(value) + " cannot be");
  }
  return extent;
}

[[gnu::noinline]] void read_any_extents(const Signature& signature, const char* name, PyObject* value, Extents& into) {
  if (!PyTuple_Check(value) && !PyList_Check(value)) {
    into.of[0] = read_extent(signature, name, value);
    into.rank = 1;
    return;
  }
  const Py_ssize_t n = PySequence_Size(value);
  if (n < 1 || n > 3)
    raise(error_types.launch, signature.kernel + ": " + name + " takes one to three extents, not " + std::to_string(n));
  for (Py_ssize_t axis = 0; axis < n; ++axis) {
    const nb::object item = nb::steal(PySequence_GetItem(value, axis));
    into.of[static_cast<std::size_t>(axis)] = read_extent(signature, name, item.ptr());
  }
  into.rank = static_cast<int>(n);
}

void read_extents(const Signature& signature, const char* name, PyObject* value, Extents& into) {
  if (!PyLong_CheckExact(value)) return read_any_extents(signature, name, value, into);
  const unsigned long long extent = PyLong_AsUnsignedLongLong(value);
  if (extent == static_cast<unsigned long long>(-1)) [[unlikely]] {  // it may be an error
    PyErr_Clear();
    return read_any_extents(signature, name, value, into);
  }
  into.of[0] = extent;
  into.rank = 1;
}

// The parameter of a name, or none.
std::size_t find_parameter(const Signature& signature, PyObject* name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name, &size);
  const auto& params = signature.params;
  if (!text) {  // half of a surrogate pair, which no name has
    PyErr_Clear();
    return params.size();
  }
  const std::string_view asked(text, static_cast<std::size_t>(size));
  const auto found =
      std::find_if(params.begin(), params.end(), [&](const Param& param) { return param.name == asked; });
  return static_cast<std::size_t>(found - params.begin());
}

bool is_keyword(PyObject* name) {
  for (PyObject* known : {keywords.threads, keywords.grid, keywords.block, keywords.shared_memory, keywords.cluster,
                          keywords.cooperative})
    if (name == known || PyUnicode_Compare(name, known) == 0) return true;
  return false;
}

// The kernel as Python shows it, such as "saxpy(float32 a, const float32* x)".
std::string described_signature(PyObject* kernel) {
  const nb::object signature = nb::handle(kernel).attr("signature");
  const nb::object text = nb::steal(PyObject_Str(signature.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(text);
}

bool read_flag(const Signature& signature, PyObject* value) {
  const std::string_view type = Py_TYPE(value)->tp_name;
  if (!PyBool_Check(value) && type != "numpy.bool" && type != "numpy.bool_")
    raise(error_types.argument_type, signature.kernel + ": cooperative takes True or False, not " + shown(value));
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

// `are_named`: what is no keyword of launches is the name of a parameter.
ShapeRequest read_request(const Signature& signature, PyObject* kernel, PyObject* names, PyObject* const* values,
                          bool are_named) {
  ShapeRequest request;
  for (Py_ssize_t i = 0, n = names ? PyTuple_GET_SIZE(names) : 0; i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    auto is = [name](PyObject* known) { return name == known || PyUnicode_Compare(name, known) == 0; };
    if (is(keywords.threads))
      read_extents(signature, "threads", values[i], request.threads);
    else if (is(keywords.grid))
      read_extents(signature, "grid", values[i], request.grid);
    else if (is(keywords.block))
      read_extents(signature, "block", values[i], request.block);
    else if (is(keywords.cluster))
      read_extents(signature, "cluster", values[i], request.cluster);
    else if (is(keywords.shared_memory))
      request.shared_bytes = read_extent(signature, "shared_memory", values[i]);
    else if (is(keywords.cooperative))
      request.cooperative = read_flag(signature, values[i]);
    else if (!are_named)
      refuse_name(signature, kernel, name);
  }
  return request;
}

std::string describe_params(const Signature& signature) {
  std::string text = "(";
  for (const Param& param : signature.params) {
    if (text.size() > 1) text += ", ";
    text += param.name;
  }
  text += ')';
  return text;
}

// A name that nothing takes, where all parameters have their arguments.
void refuse_name(const Signature& signature, PyObject* kernel, PyObject* name) {
  const bool is_doubled = find_parameter(signature, name) < signature.params.size();
  const std::string given = shown(name);
  raise(error_types.argument_type,
        signature.kernel + ": " +
            (is_doubled ? "the parameter " + given + " was given by position, and by name as well"
                        : "unexpected keyword " + given) +
            "; the kernel is " + described_signature(kernel) +
            ", and launches take threads, grid, block, shared_memory, cluster, cooperative");
}

// The arguments in the order of the parameters, where some are given by name, as Python's functions take them: those by
// position come first. The keywords of launches are never parameters' names.
std::vector<PyObject*> in_order(const Signature& signature, PyObject* kernel, PyObject* const* args, std::size_t n,
                                PyObject* names) {
  std::vector<PyObject*> found(args, args + std::min(n, signature.params.size()));
  found.resize(signature.params.size(), nullptr);
  bool are_named = false;
  for (Py_ssize_t i = 0, count = names ? PyTuple_GET_SIZE(names) : 0; i < count; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (is_keyword(name)) continue;
    const std::size_t at = find_parameter(signature, name);
    if (at >= found.size() || found[at]) refuse_name(signature, kernel, name);
    found[at] = args[n + static_cast<std::size_t>(i)];
    are_named = true;
  }
  std::string missing, hint;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i]) continue;
    const std::string& name = signature.params[i].name;
    missing += (missing.empty() ? "" : ", ") + name;
    if (is_keyword(nb::str(name.c_str()).ptr()))
      hint += "; " + name + " is a keyword of launches: give the parameter of that name by position";
  }
  if (n <= found.size() && missing.empty()) return found;
  const bool is_missing = are_named && n <= found.size();
  raise(error_types.argument_type,
        signature.kernel + ": " + std::to_string(found.size()) + " arguments are expected, " +
            describe_params(signature) + "; " +
            (is_missing ? "no argument was given for " + missing : std::to_string(n) + " were given") + hint +
            "; the kernel is " + described_signature(kernel));
}

// Of as many arguments as there are parameters.
nb::object build_of(KernelObject& kernel, PyObject* const* args, const ShapeRequest& request) {
  Signature& signature = *kernel.signature;
  const std::size_t n = signature.params.size();
  LaunchOp* made;
  nb::object object =
      SpareObjects<LaunchOp>::make(kernel.op_class, made, reinterpret_cast<PyObject*>(&kernel), signature);
  LaunchOp& op = *made;
  op.is_asked = true;  // if it comes to nothing, nobody is told that it was never executed
  op.origin.capture();
  op.shape = resolve_shape(signature, request);
  Home home;
  for (std::size_t i = 0; i < n; ++i) op.bind(args[i], home);
  if (signature.has_partition)
    for (std::size_t i = 0; i < n; ++i)
      if (const Array* array = signature.params[i].kind == ParamKind::partition ? as_array(args[i]) : nullptr)
        fit_partition(signature, i, *array, op.shape);
  // Its result, as far as that is known: the array that it writes.
  if (signature.outputs.size() == 1) {
    const Argument& output = op.arguments[signature.outputs.front()];
    if (const Op* producer = as_op(output.object)) {
      op.spec = producer->spec;
    } else {
      const Array* array = as_array(output.object);
      op.spec = {Yields::device_array, array->dtype, array->device, array->is_managed()};
    }
  }
  if (!home.is_free) {
    op.tied_device = home.device;
    if (op.spec.yields == Yields::device_array && op.spec.device == unknown_ordinal && !op.spec.is_managed)
      op.spec.device = home.device;
  }
  op.is_asked = false;
  return object;
}

nb::object build(KernelObject& kernel, PyObject* const* args, std::size_t n, PyObject* names) {
  const Signature& signature = *kernel.signature;
  PyObject* const self = reinterpret_cast<PyObject*>(&kernel);
  PyObject* const* values = args + n;
  if (n == signature.params.size()) [[likely]]
    return build_of(kernel, args, read_request(signature, self, names, values, false));
  const std::vector<PyObject*> ordered = in_order(signature, self, args, n, names);
  return build_of(kernel, ordered.data(), read_request(signature, self, names, values, true));
}

PyObject* kernel_call(PyObject* self, PyObject* const* args, std::size_t flagged, PyObject* names) noexcept {
  try {
    return build(*reinterpret_cast<KernelObject*>(self), args, static_cast<std::size_t>(PyVectorcall_NARGS(flagged)),
                 names)
        .release()
        .ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

ParamKind kind_named(const std::string& name) {
  int kind = 0;
  while (name != name_of(static_cast<ParamKind>(kind)))
    if (++kind > static_cast<int>(ParamKind::structure))
      raise(error_types.argument_type, "no such kind of parameter: " + name);
  return static_cast<ParamKind>(kind);
}

void add_params(Signature& signature, nb::handle params) {
  for (nb::handle each : params) {
    signature.params.push_back(nb::cast<const Param&>(each));
    const Param& added = signature.params.back();
    signature.words += added.words();
    signature.has_partition = signature.has_partition || added.kind == ParamKind::partition;
    if (!is_scalar(added.kind) && added.writes) {
      signature.outputs.push_back(static_cast<std::uint32_t>(signature.params.size() - 1));
    }
  }
}

// Of a kernel whose source does not say its parameters: its Python part asks the compiler, the first time.
PyObject* open_kernel_call(PyObject* self, PyObject* const* args, std::size_t flagged, PyObject* names) noexcept {
  auto* kernel = reinterpret_cast<KernelObject*>(self);
  try {
    const nb::object params = nb::borrow(self).attr("_native_parameters")();
    if (kernel->vectorcall == open_kernel_call) {  // asking gives up the GIL: another thread may have been here
      add_params(*kernel->signature, params);
      kernel->vectorcall = kernel_call;
    }
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return kernel_call(self, args, flagged, names);
}

int kernel_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<KernelObject*>(self)->op_class);
  return 0;
}

void kernel_dealloc(PyObject* self) {
  auto* kernel = reinterpret_cast<KernelObject*>(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (kernel->weak_references) PyObject_ClearWeakRefs(self);
  Py_CLEAR(kernel->op_class);
  std::unique_ptr<Signature>(kernel->signature).reset();
  type->tp_free(self);
  Py_DECREF(type);
}

// The native part of a kernel; Python's class `Kernel` derives from it, and has all that a kernel is asked for.
PyTypeObject* make_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", Py_T_PYSSIZET, offsetof(KernelObject, vectorcall), Py_READONLY, nullptr},
      {"__weaklistoffset__", Py_T_PYSSIZET, offsetof(KernelObject, weak_references), Py_READONLY, nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(kernel_traverse)},
                                {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"aiocuda._native.Kernel", sizeof(KernelObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!type) throw nb::python_error();
  return type;
}

PyTypeObject* kernel_type;

// CPython 3.11 keeps from Python's classes that their objects are called without a tuple; later ones let them inherit
// it.
void inherit_call(PyTypeObject* type) {
  if (type->tp_call == kernel_type->tp_call && type->tp_vectorcall_offset == kernel_type->tp_vectorcall_offset)
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
}

}  // namespace

void bind_kernel(nb::module_& module) {
  keywords = {PyUnicode_InternFromString("threads"), PyUnicode_InternFromString("grid"),
              PyUnicode_InternFromString("block"),   PyUnicode_InternFromString("shared_memory"),
              PyUnicode_InternFromString("cluster"), PyUnicode_InternFromString("cooperative")};
  kernel_type = make_type();
  module.attr("Kernel") = nb::borrow(reinterpret_cast<PyObject*>(kernel_type));
  nb::class_<ModuleMemory>(module, "ModuleMemory").def(nb::init<>());
  module.def("demangled", [](const std::string& mangled) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> found(
        abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
    return status == 0 ? std::string(found.get()) : mangled;
  });
  // A parameter as native code packs it. `pack` gives the bytes of a struct's value, or says what is wrong with it.
  nb::class_<Param>(module, "Parameter")
      .def(
          "__init__",
          [](Param* self, const std::string& kind, const std::string& name, DType dtype, bool writes,
             std::uint32_t rank, std::uint32_t width, std::uint32_t size_bytes, nb::object pack,
             std::uint32_t alignment) {
            new (self)
                Param{kind_named(kind), dtype, writes, name, rank, width, size_bytes, std::move(pack), alignment};
          },
          "kind"_a, "name"_a, nb::kw_only(), "dtype"_a, "writes"_a = false, "rank"_a = 0, "width"_a = 1,
          "size_bytes"_a = 0, "pack"_a.none() = nb::none(), "alignment"_a = 1);
  // Takes over an image that was loaded, to unload it in its time.
  nb::class_<driver::LoadedImage>(module, "LoadedImage")
      .def("__init__", [](driver::LoadedImage* self, std::uintptr_t library, std::int32_t device) {
        new (self) driver::LoadedImage{process_engine().images.own(reinterpret_cast<CUlibrary>(library), device)};
      });
  // A kernel on a device: its function, the image that this is in, and what the device allows it.
  nb::class_<Signature::Loaded>(module, "LoadedFunction")
      .def(
          "__init__",
          [](Signature::Loaded* self, std::uintptr_t function, const driver::LoadedImage& image,
             std::uint32_t shared_limit_bytes, std::uint32_t shared_most_bytes, std::uint32_t max_threads,
             std::uint32_t multiprocessors, bool is_cooperative, bool has_clusters) {
            new (self) Signature::Loaded{reinterpret_cast<void*>(function),
                                         shared_limit_bytes,
                                         shared_most_bytes,
                                         max_threads,
                                         multiprocessors,
                                         is_cooperative,
                                         has_clusters,
                                         image.buffer};
          },
          "function"_a, "image"_a, nb::kw_only(), "shared_limit_bytes"_a, "shared_most_bytes"_a, "max_threads"_a,
          "multiprocessors"_a, "is_cooperative"_a, "has_clusters"_a);
  // type: derives from `Kernel`. params: None where its `_native_parameters` is to be asked at the first call. The
  // class has `_load_with_limits(device, op)`, which gives a `LoadedFunction`.
  module.def(
      "make_kernel",
      [](nb::handle type, nb::handle op_class, const std::string& name, nb::object params, std::uint32_t max_threads,
         std::shared_ptr<ModuleMemory> memory) {
        auto signature = std::make_unique<Signature>();
        signature->kernel = name;
        signature->name = dataflow::kept_for_good(name);
        signature->max_threads = max_threads;
        signature->memory = std::move(memory);
        const bool is_open = params.is_none();
        if (!is_open) add_params(*signature, params);
        auto* kind = reinterpret_cast<PyTypeObject*>(type.ptr());
        if (!PyType_Check(type.ptr()) || !PyType_IsSubtype(kind, kernel_type))
          throw nb::type_error("a kernel's class derives from Kernel");
        inherit_call(kind);
        nb::object object = nb::steal(PyType_GenericAlloc(kind, 0));
        if (!object.is_valid()) throw nb::python_error();
        auto* kernel = reinterpret_cast<KernelObject*>(object.ptr());
        kernel->vectorcall = is_open ? open_kernel_call : kernel_call;
        kernel->op_class = op_class.inc_ref().ptr();
        kernel->signature = signature.release();
        return object;
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg());
  module.def("unload_images", [](std::int32_t device) { process_engine().images.unload(device); });
  // How many images are loaded, and how many of them nobody holds any more.
  module.def("image_counts",
             [] { return nb::make_tuple(process_engine().images.count(), process_engine().images.dropped_count()); });
  // A kernel's function on a device is another one from now on, if it has one there.
  module.def("set_function", [](nb::handle kernel, std::int32_t device, const Signature::Loaded& made) {
    auto& loaded = reinterpret_cast<KernelObject*>(kernel.ptr())->signature->loaded;
    const auto slot = static_cast<std::size_t>(device);
    if (slot >= loaded.size() || !loaded[slot].function) return;
    const Signature::Loaded before = std::exchange(loaded[slot], made);  // let go of last: it may come back here
  });
  // The dynamic shared memory that a kernel's launches have asked for on a device, or that was set; 0 before the first.
  module.def("shared_limit", [](nb::handle kernel, std::int32_t device) -> std::uint32_t {
    const auto& loaded = reinterpret_cast<KernelObject*>(kernel.ptr())->signature->loaded;
    const auto slot = static_cast<std::size_t>(device);
    return slot < loaded.size() && loaded[slot].function ? loaded[slot].shared_limit_bytes : 0;
  });
  // The dynamic shared memory that a kernel's launches may have on a device was set.
  module.def("set_shared_limit", [](nb::handle kernel, std::int32_t device, std::uint32_t limit_bytes) {
    auto& loaded = reinterpret_cast<KernelObject*>(kernel.ptr())->signature->loaded;
    const auto slot = static_cast<std::size_t>(device);
    if (slot < loaded.size()) loaded[slot].shared_limit_bytes = limit_bytes;
  });
}

}  // namespace aiocuda
