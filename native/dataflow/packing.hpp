// From Python values to the machine words that a kernel's parameters hold.
//
// Always true: a value that the parameter's C type cannot hold is an error here, never a wrapped one.
#pragma once
#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "raise.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

// An array's address; an array, or a partition of one, as the structs of aiocuda/tile.cuh; a number; or a struct of the
// user's.
enum class ParamKind : std::uint8_t {
  array,
  view,
  partition,
  boolean,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  structure
};

inline const char* name_of(ParamKind kind) {
  static constexpr const char* names[] = {"array",   "view",     "partition", "bool",    "int8",  "uint8",
                                          "int16",   "uint16",   "int32",     "uint32",  "int64", "uint64",
                                          "float16", "bfloat16", "float32",   "float64", "struct"};
  return names[static_cast<std::size_t>(kind)];
}

// A value, that no array is behind.
inline bool is_scalar(ParamKind kind) { return kind >= ParamKind::boolean; }

inline std::string with_article(ParamKind kind) {
  std::string text = name_of(kind);
  text.insert(0, text[0] == 'i' || text[0] == 'a' ? "an " : "a ");
  return text;
}

// `where` says which argument it is, and is only called to make an error's text.
template <class Where>
std::uint64_t pack_signed(PyObject* value, std::int64_t low, std::int64_t high, ParamKind kind, Where&& where) {
  int overflow = 0;
  const long long word = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow || word < low || word > high)
    raise(error_types.argument_range, where() + ": " + nb::cast<std::string>(nb::repr(value)) + " does not fit " +
                                          name_of(kind) + " (" + std::to_string(low) + " to " + std::to_string(high) +
                                          ")");
  return static_cast<std::uint64_t>(word);
}

template <class Where>
std::uint64_t pack_unsigned(PyObject* value, std::uint64_t high, ParamKind kind, Where&& where) {
  const unsigned long long word = PyLong_AsUnsignedLongLong(value);
  const bool overflow = word == static_cast<unsigned long long>(-1) && PyErr_Occurred();
  if (overflow) PyErr_Clear();
  if (overflow || word > high)
    raise(error_types.argument_range, where() + ": " + nb::cast<std::string>(nb::repr(value)) + " does not fit " +
                                          name_of(kind) + " (0 to " + std::to_string(high) + ")");
  return word;
}

template <class Where>
std::uint64_t pack_integer(PyObject* value, ParamKind kind, Where&& where) {
  switch (kind) {
    case ParamKind::boolean:
      return pack_unsigned(value, 1, kind, where);
    case ParamKind::i8:
      return pack_signed(value, INT8_MIN, INT8_MAX, kind, where);
    case ParamKind::u8:
      return pack_unsigned(value, UINT8_MAX, kind, where);
    case ParamKind::i16:
      return pack_signed(value, INT16_MIN, INT16_MAX, kind, where);
    case ParamKind::u16:
      return pack_unsigned(value, UINT16_MAX, kind, where);
    case ParamKind::i32:
      return pack_signed(value, INT32_MIN, INT32_MAX, kind, where);
    case ParamKind::u32:
      return pack_unsigned(value, UINT32_MAX, kind, where);
    case ParamKind::i64:
      return pack_signed(value, INT64_MIN, INT64_MAX, kind, where);
    default:
      return pack_unsigned(value, UINT64_MAX, kind, where);
  }
}

// Round to nearest, ties to even; the quiet bit keeps a NaN a NaN.
inline std::uint16_t to_bfloat16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class Where>
std::uint64_t pack_float(double value, ParamKind kind, Where&& where) {
  std::uint64_t word = 0;
  bool fits = true;
  if (kind == ParamKind::f64) {
    std::memcpy(&word, &value, sizeof value);
  } else if (kind == ParamKind::f16) {
    std::uint16_t bits = 0;
    if (PyFloat_Pack2(value, reinterpret_cast<char*>(&bits), 1) != 0) {
      PyErr_Clear();
      fits = false;
    }
    word = bits;
  } else {
    const float narrow = static_cast<float>(value);
    fits = !(std::isinf(narrow) && std::isfinite(value));
    if (kind == ParamKind::bf16) {
      word = to_bfloat16(narrow);
      fits = fits && !((word & 0x7fff) == 0x7f80 && std::isfinite(value));
    } else {
      std::memcpy(&word, &narrow, sizeof narrow);
    }
  }
  if (!fits)
    raise(error_types.argument_range,
          where() + ": " + nb::cast<std::string>(nb::repr(nb::float_(value))) + " is too large for " + name_of(kind));
  return word;
}

template <class Where>
[[gnu::noinline]] std::uint64_t pack_scalar(nb::handle value, ParamKind kind, Where&& where) {
  auto reject = [&] {
    raise(error_types.argument_type,
          where() + ": " + with_article(kind) + " is expected, " +
              nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(value.ptr())).attr("__name__"))) + " was given");
  };
  if (kind >= ParamKind::f16) {
    if (PyFloat_CheckExact(value.ptr())) return pack_float(PyFloat_AS_DOUBLE(value.ptr()), kind, where);
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1.0 && PyErr_Occurred()) {
      const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
      PyErr_Clear();
      if (too_large) raise(error_types.argument_range, where() + ": the integer is too large for " + name_of(kind));
      reject();
    }
    return pack_float(number, kind, where);
  }
  if (PyLong_CheckExact(value.ptr())) return pack_integer(value.ptr(), kind, where);
  nb::object index;
  if (PyObject* number = PyNumber_Index(value.ptr())) {
    index = nb::steal(number);
  } else {
    PyErr_Clear();
    // NumPy's bool is no integer, but 0 or 1 where one is asked for.
    if (kind == ParamKind::boolean &&
        nb::cast<std::string>(nb::handle(Py_TYPE(value.ptr())).attr("__name__")).starts_with("bool")) {
      const int truth = PyObject_IsTrue(value.ptr());
      if (truth < 0) throw nb::python_error();
      return static_cast<std::uint64_t>(truth);
    }
    reject();
  }
  return pack_integer(index.ptr(), kind, where);
}

}  // namespace aiocuda::dataflow
