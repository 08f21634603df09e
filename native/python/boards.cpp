// The boards of groups, for Python: see boards.hpp.
#include "boards.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../agreeing/board.hpp"
#include "process.hpp"

namespace nb = nanobind;

namespace aiocuda {
namespace {

using agreeing::Board;

// Memory of Python's that others may not take away.
class Held {
 public:
  explicit Held(nb::handle memory) {
    if (PyObject_GetBuffer(memory.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { PyBuffer_Release(&view_); }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

struct HeldBoard {
  HeldBoard(nb::handle memory, std::size_t rank, std::size_t ranks) : held(memory), board(held.bytes(), rank, ranks) {}
  Held held;
  Board board;
};

}  // namespace

void bind_boards(nb::module_& module) {
  // Has memory that the driver has locked unlocked when all devices are at rest, and keeps something until then. At any
  // other time the driver would wait for the devices, and others for the driver, whom a device may wait for.
  module.def("unlock_at_rest", [](std::uintptr_t address, nb::object keeper) {
    if (process_engine().is_over()) return;
    process_engine().memory.unlock_at_rest(address, std::make_shared<nb::object>(std::move(keeper)));
  });
  nb::class_<HeldBoard>(module, "Board")
      .def(nb::init<nb::handle, std::size_t, std::size_t>(), nb::arg("memory"), nb::arg("rank"), nb::arg("ranks"))
      .def("put", [](HeldBoard& self, std::uint64_t call) { return self.board.put(call); })
      .def("advance", [](HeldBoard& self) { self.board.advance(); })
      .def("raise_to", [](HeldBoard& self, std::uint32_t number) { self.board.raise_to(number); })
      .def("let_go", [](HeldBoard& self) { self.board.let_go(); })
      .def_prop_ro("agreed", [](const HeldBoard& self) { return self.board.agreed(); })
      // Where the words of all ranks are, and this rank's among them.
      .def_prop_ro("words",
                   [](const HeldBoard& self) {
                     return reinterpret_cast<std::uintptr_t>(self.held.bytes().data()) + Board::words_at;
                   })
      .def_prop_ro("word", [](const HeldBoard& self) { return self.board.word_address(); })
      .def_prop_ro_static("size_bytes", [](nb::handle) { return Board::size_bytes(); })
      .def_prop_ro_static("words_bytes", [](nb::handle) { return Board::words_bytes; })
      .def_prop_ro_static("most_ranks", [](nb::handle) { return Board::most_ranks; });
}

}  // namespace aiocuda
