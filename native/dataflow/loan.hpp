// Memory that is somebody else's, and who lends it.
//
// Always true: the owner is kept as long as the loan. A lender is a framework on one device, which tells the stream
// that it puts the calling thread's work on; loans without a lender are ordered when they are made, and not again.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>

namespace aiocuda::dataflow {
namespace nb = nanobind;

// Never released: there are as many as frameworks and devices.
struct Lender {
  std::int32_t device;
  nb::object current_stream;  // (ordinal) -> its handle, for the calling thread; or the handle, where it is always one
  nb::object note_writes;     // (list of owners): they are written; none if the framework need not know
  // (DLPack's kind of CUDA devices, ordinal, handle) -> 0, without a call of Python's; null: it has none.
  int (*work_stream)(std::int32_t kind, std::int32_t ordinal, void** handle) = nullptr;
};

struct Loan {
  explicit Loan(nb::object lent_by, Lender* from = nullptr) : owner(std::move(lent_by)), lender(from) {}
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  nb::object owner;
  Lender* const lender;  // null: his work is ordered once

  // Was an array of a framework ever given as it is? Until then nobody looks for one.
  static bool& is_any_tensor() {
    static bool is_any = false;
    return is_any;
  }

 protected:
  ~Loan() = default;
};

}  // namespace aiocuda::dataflow
