// The driver's calls that ask about, order or end what was submitted before them.
//
// Always true: when such a call is made, the driver has been given all earlier work of the streams that the call is
// about. Today a submission gives the driver its calls before it returns. A walk that holds calls back makes them before it
// asks or frees anything, and says so by `Withheld`. Whatever delays calls in another way must make them in `given()`.
#pragma once
#include <cassert>

#include "table.hpp"

namespace aiocuda::driver {

class DriverNow {
 public:
  explicit DriverNow(const Table& table) : table_(table) {}

  // Questions.
  CUresult query(CUstream stream) const { return given().cuStreamQuery(stream); }
  CUresult query(CUevent event) const { return given().cuEventQuery(event); }
  CUresult synchronize(CUstream stream) const { return given().cuStreamSynchronize(stream); }

  // Orders.
  CUresult record(CUevent event, CUstream stream) const { return given().cuEventRecord(event, stream); }
  CUresult wait(CUstream stream, CUevent event) const { return given().cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT); }
  CUresult write(CUstream stream, CUdeviceptr address, std::uint32_t value) const {
    return given().cuStreamWriteValue32(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT);
  }

  // Ends.
  CUresult free(CUdeviceptr address, CUstream stream) const { return given().cuMemFreeAsync(address, stream); }
  CUresult destroy(CUstream stream) const { return given().cuStreamDestroy(stream); }
  CUresult destroy(CUevent event) const { return given().cuEventDestroy(event); }
  CUresult unload(CUlibrary library) const { return given().cuLibraryUnload(library); }
  CUresult close(CUdeviceptr opened) const { return given().cuIpcCloseMemHandle(opened); }

 private:
  // The one place that all these calls go through.
  const Table& given() const { return table_; }

  const Table& table_;
};

}  // namespace aiocuda::driver
