// The one way to the driver's calls that ask about, order or end what was submitted before them.
//
// Always true: when such a call is made, the driver has been given all earlier work that the call is about. A walk that
// holds calls back says so here. It makes them before it asks; until it has, nothing is freed or destroyed. Whatever
// else comes to delay calls has them made in `given()`.
#pragma once
#include "table.hpp"

namespace aiocuda::driver {

class DriverNow {
 public:
  explicit DriverNow(const Table& table) : table_(table) {}
  DriverNow(const DriverNow&) = delete;
  DriverNow& operator=(const DriverNow&) = delete;

  // Calls are held back from here on; they have been made.
  void note_held_back() { holds_back_ = true; }
  void note_given() { holds_back_ = false; }
  // Memory may be freed, and handles destroyed: no call that uses them is still to be made.
  bool has_all() const { return !holds_back_; }

  // Questions.
  CUresult query(CUstream stream) const { return given().cuStreamQuery(stream); }
  CUresult query(CUevent event) const { return given().cuEventQuery(event); }
  CUresult synchronize(CUstream stream) const { return given().cuStreamSynchronize(stream); }

  // Orders.
  CUresult record(CUevent event, CUstream stream) const { return given().cuEventRecord(event, stream); }
  CUresult wait(CUstream stream, CUevent event) const {
    return given().cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT);
  }
  CUresult write(CUstream stream, CUdeviceptr address, std::uint32_t value) const {
    return given().cuStreamWriteValue32(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }

  // Ends.
  CUresult free(CUdeviceptr address, CUstream stream) const { return given().cuMemFreeAsync(address, stream); }
  CUresult destroy(CUstream stream) const { return given().cuStreamDestroy(stream); }
  CUresult destroy(CUevent event) const { return given().cuEventDestroy(event); }
  CUresult destroy(CUgraphExec executable) const { return given().cuGraphExecDestroy(executable); }
  CUresult unload(CUlibrary library) const { return given().cuLibraryUnload(library); }
  CUresult close(CUdeviceptr opened) const { return given().cuIpcCloseMemHandle(opened); }

 private:
  // The one place that all these calls go through.
  const Table& given() const { return table_; }

  const Table& table_;
  bool holds_back_ = false;
};

}  // namespace aiocuda::driver
