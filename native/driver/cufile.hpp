// cuFile, NVIDIA's library of GPUDirect Storage. Its functions are found at run time: nothing is linked.
//
// Always true: it is never closed, for it may work on a device until the process ends.
#pragma once
#include <cuda.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "../staging/direct.hpp"

namespace aiocuda::driver {

class CuFile final : public staging::DirectWay {
 public:
  // `path`: of the library. Throws std::runtime_error, which says what is wrong with it.
  explicit CuFile(const std::string& path);

  Handle take(int descriptor) override;
  void give_back(Handle handle) noexcept override;
  void move(Handle handle, bool reads, std::uint64_t address, staging::DirectPart& part, void* stream) override;

 private:
  // As cufile.h declares them.
  struct Error {
    int code;  // 0, or 5001 and more
    CUresult of_driver;
  };
  struct Description {
    int kind;  // 1: a file descriptor
    union {
      int descriptor;
      void* other;
    } of;
    const void* functions;
  };
  using Open = Error();
  using Register = Error(Handle*, Description*);
  using Deregister = void(Handle);
  using Move = Error(Handle, void*, std::size_t*, off_t*, off_t*, ssize_t*, CUstream);

  Register* register_ = nullptr;
  Deregister* deregister_ = nullptr;
  Move *read_ = nullptr, *write_ = nullptr;
};

}  // namespace aiocuda::driver
