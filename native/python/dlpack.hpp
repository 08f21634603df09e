// Arrays as other libraries take them, by DLPack (https://dmlc.github.io/dlpack/latest/, version 1.3).
//
// Always true: who takes a tensor borrows the array until it calls the deleter. A capsule that nobody consumes ends the
// borrow with itself.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "../dataflow/array.hpp"
#include "../driver/lending.hpp"

namespace aiocuda {

// DLPack's structures.
namespace dlpack {
namespace kinds {  // of devices
inline constexpr std::int32_t cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13;
}
struct Device {
  std::int32_t kind, ordinal;
};
struct ItemType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  std::int32_t axes;
  ItemType type;
  std::int64_t *shape, *strides;  // strides in items
  std::uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};
inline constexpr std::uint32_t major = 1, minor = 3;  // the newest version that is known here
inline constexpr std::uint64_t read_only_flag = 1;

// The table of functions that a class of arrays has as `__dlpack_c_exchange_api__`. None of them makes the host wait,
// or orders anything. They return 0, or set Python's error.
struct ExchangeApi {
  std::uint32_t major, minor;
  const ExchangeApi* previous;  // of an older version
  int (*allocate)(Tensor* like, ManagedVersioned** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*from_object)(void* object, ManagedVersioned** out);
  int (*to_object)(ManagedVersioned* tensor, void** out);
  int (*view_of_object)(void* object, Tensor* out);  // null: there is none
  int (*current_work_stream)(std::int32_t kind, std::int32_t ordinal, void** out);
};
inline constexpr const char* exchange_capsule = "dlpack_exchange_api";
}  // namespace dlpack

// How an array is lent.
struct Terms {
  dlpack::Device place;
  std::int32_t device;                            // of the borrower's stream
  CUstream theirs;                                // the borrower's, which is ordered here; null: none is
  bool is_read_only;                              // the borrower may not write
  nanobind::object keeper{};                      // keeps `theirs` from being destroyed; or nothing does
  std::uint32_t minor = dlpack::minor;            // of the version that the borrower knows
  std::optional<dataflow::LentType> item_type{};  // what the items are called; none: what they are
};
// Lends an array whose use was checked. The borrower calls the deleter of what is returned.
dlpack::ManagedVersioned& lend(const dataflow::Array& array, Terms terms);
// May nobody write it now?
bool is_for_reading(const dataflow::Array& array);
// Raises where the device, or another library, still works on memory that the host is to read.
void require_at_rest(const dataflow::Array& array);
// Raises the error of a collective that was to write some of it, and has failed.
void require_well(const dataflow::Array& array);

void bind_dlpack(nanobind::module_& module);

}  // namespace aiocuda
