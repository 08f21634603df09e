// The line of the user's program that built an operation: kept as a code object and an instruction
// offset (some 20 ns), turned into a file and a line only when somebody asks.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "buffer.hpp"

namespace aiocuda::dataflow {
namespace nb = nanobind;

inline std::string& package_directory() {
  static auto* directory = new std::string;
  return *directory;
}
// The module of Python's by which `with` enters what the package has as generators.
inline std::string& contexts_file() {
  static auto* file = new std::string;
  return *file;
}

[[gnu::noinline]] inline bool look_whether_package_code(PyCodeObject* code, PyCodeObject*& last_foreign) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  const std::string& directory = package_directory();
  if (!file) {
    PyErr_Clear();
    return false;
  }
  if (!directory.empty() && directory.compare(0, directory.size(), file,
                                              std::min(directory.size(), std::char_traits<char>::length(file))) == 0)
    return true;
  if (file == contexts_file()) return true;
  Py_INCREF(code);
  Py_XDECREF(reinterpret_cast<PyObject*>(std::exchange(last_foreign, code)));
  return false;
}
inline bool is_package_code(PyCodeObject* code) {
  // Most operations are built from the same function as the one before: remember the last answer,
  // and the code object with it, so that its address cannot be another's.
  static PyCodeObject* last_foreign = nullptr;
  return code != last_foreign && look_whether_package_code(code, last_foreign);
}

class Origin {
 public:
  // While a trace is recorded: told of each origin when it is captured.
  static inline void (*note_built)(const Origin&) = nullptr;

  Origin() = default;
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;
  ~Origin() { Py_XDECREF(reinterpret_cast<PyObject*>(code_)); }

  // The innermost frame that is not the package's own.
  void capture() {
    if (note_built) [[unlikely]]
      note_built(*this);
    PyFrameObject* frame = PyEval_GetFrame();  // borrowed
    if (!frame) return;
    Py_INCREF(frame);
    while (frame) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      if (!is_package_code(code)) {
        code_ = code;
        instruction_ = PyFrame_GetLasti(frame);
        Py_DECREF(frame);
        return;
      }
      Py_DECREF(code);
      PyFrameObject* outer = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = outer;
    }
  }

  nb::object location() const { return location(code_, instruction_); }  // (file, line) or None
  std::string text() const { return text(code_, instruction_); }         // "file:line", or empty
  PyObject* code() const { return reinterpret_cast<PyObject*>(code_); }  // borrowed, or null
  int instruction() const { return instruction_; }

  // What is left of an origin in what lives longer than the operation.
  class Place {
   public:
    Place(nb::object code, int instruction) : code_(std::move(code)), instruction_(instruction) {}
    nb::object location() const { return Origin::location(code(), instruction_); }
    std::string text() const { return Origin::text(code(), instruction_); }

   private:
    PyCodeObject* code() const { return reinterpret_cast<PyCodeObject*>(code_.ptr()); }

    nb::object code_;
    int instruction_;
  };
  static Place place(const Maker& maker) {
    return {nb::borrow(nb::handle(static_cast<PyObject*>(maker.object()))), maker.number()};
  }

  // The same, for what lives longer than the operation.
  Maker maker() const {
    Py_XINCREF(reinterpret_cast<PyObject*>(code_));
    return {code_, instruction_, [](void* code) { Py_DECREF(static_cast<PyObject*>(code)); }};
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(reinterpret_cast<PyObject*>(code_));
    return 0;
  }

 private:
  static nb::object location(PyCodeObject* code, int instruction) {
    if (!code) return nb::none();
    return nb::make_tuple(nb::borrow(code->co_filename), PyCode_Addr2Line(code, instruction));
  }
  static std::string text(PyCodeObject* code, int instruction) {
    if (!code) return {};
    return nb::cast<std::string>(nb::handle(code->co_filename)) + ":" +
           std::to_string(PyCode_Addr2Line(code, instruction));
  }

  PyCodeObject* code_ = nullptr;
  int instruction_ = -1;
};

// The line of the user's program, as "file:line".
inline std::string place_of_caller() {
  Origin origin;
  origin.capture();
  const std::string place = origin.text();
  return place.empty() ? "an unknown place" : place;
}

}  // namespace aiocuda::dataflow
