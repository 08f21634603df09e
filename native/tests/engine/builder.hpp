// Operations as programs build them, for tests, in a Python interpreter.
//
// Always true: an operation, an array and a placement are the classes that programs use.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataflow/launch.hpp"

namespace aiocuda::driver::tests {
namespace nb = nanobind;
using dataflow::Array;
using dataflow::BufferRef;
using dataflow::Op;
using dataflow::Placement;

// The classes that the tests make objects of, as Python knows them.
void bind_nouns(nb::module_& module);

// An object of Python's around a native one.
template <class T, class... Arguments>
nb::object make(Arguments&&... arguments) {
  nb::object object = nb::inst_alloc(nb::type<T>());
  new (nb::inst_ptr<T>(object)) T(std::forward<Arguments>(arguments)...);
  nb::inst_mark_ready(object);
  return object;
}
template <class T>
T& of(nb::handle object) {
  return *nb::inst_ptr<T>(object);
}
inline Op& op_of(nb::handle object) { return *dataflow::as_op(object); }

// The data types that there are.
inline constexpr dataflow::DType byte = 1, complex = 2;

// Outlives the operations that it builds: it keeps the signatures of their kernels.
class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  virtual ~Builder() = default;

  nb::object create(std::uint64_t size_bytes, std::int32_t device = dataflow::unknown_ordinal,
                    std::uint32_t pattern_bytes = 0, dataflow::DType dtype = byte);
  nb::object create_host(std::uint64_t size_bytes);
  nb::object fill(const nb::object& destination, std::uint32_t pattern_bytes = 1);
  nb::object copy(const nb::object& destination, const nb::object& source);
  nb::object gather(const std::vector<nb::object>& items);
  nb::object pick(const nb::object& source, std::int64_t index);
  nb::object map(const nb::object& input, nb::object function);
  nb::object then(const nb::object& input, nb::object function);
  // Of a kernel that reads some arrays and writes others.
  nb::object launch(const std::vector<nb::object>& reads, const std::vector<nb::object>& writes);
  // The same, with a kernel of the test's.
  nb::object launch_of(nb::object kernel, dataflow::Signature& signature, const std::vector<nb::object>& arguments);
  std::shared_ptr<dataflow::Signature> signature(std::size_t reads, std::size_t writes, bool is_loaded = true);

 protected:
  void forget_signatures() { signatures_.clear(); }

 private:
  // Loads a kernel on the devices that there are.
  virtual void load(dataflow::Signature&) {}

  std::vector<std::shared_ptr<dataflow::Signature>> signatures_;
  const nb::object kernel_ = nb::str("a kernel");
};

}  // namespace aiocuda::driver::tests
