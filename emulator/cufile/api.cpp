// cuFile's functions: reads and writes between files and the memory of emulated devices.
//
// Always true: the bytes move on the stream's thread, when the stream comes there, and what moves is known to the
// driver, so it finds races with it. They go through the system's cache, as cuFile's do without its kernel module. So a
// caller's descriptor may ask for aligned memory and places (O_DIRECT), and those here need not be aligned.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "abi/stream_work.hpp"
#include "cufile_api.hpp"

#define CUFILE_API extern "C" [[gnu::visibility("default")]]

namespace aiocuda::emulator::cufile {
namespace {

std::atomic<int> opened{0};  // how often the driver was opened, less how often it was closed

class Handle {
 public:
  explicit Handle(int given) {
    const int flags = ::fcntl(given, F_GETFL);
    const std::string same = "/proc/self/fd/" + std::to_string(given);
    if (flags >= 0) descriptor_ = ::open(same.c_str(), (flags & O_ACCMODE) | O_CLOEXEC);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

constexpr CUfileError_t success{CU_FILE_SUCCESS, CUDA_SUCCESS};

CUfileError_t result_of(CUresult result) {
  return result == CUDA_SUCCESS ? success : CUfileError_t{CU_FILE_CUDA_DRIVER_ERROR, result};
}

// One read or write. What the caller points to is looked at when the stream comes there.
struct Transfer {
  int descriptor;
  bool is_read;
  std::byte* base;
  const std::size_t* size;
  const off_t *file_offset, *base_offset;
  ssize_t* moved;
  int* error;  // where the caller waits; cuFile tells nobody else which error of the system's it was

  // The bytes that were moved, fewer at the end of a file; or -1.
  ssize_t move() const {
    std::byte* at = base + *base_offset;
    std::size_t done = 0;
    while (done < *size) {
      const off_t place = *file_offset + static_cast<off_t>(done);
      const ssize_t step = is_read ? ::pread(descriptor, at + done, *size - done, place)
                                   : ::pwrite(descriptor, at + done, *size - done, place);
      if (step < 0 && errno == EINTR) continue;
      if (step < 0) {
        if (error) *error = errno;
        return -1;
      }
      if (step == 0) break;
      done += static_cast<std::size_t>(step);
    }
    return static_cast<ssize_t>(done);
  }
  void run(const abi::StreamWorkServices& services) const {
    *moved = -1;  // a device that is lost moves nothing
    std::function<void()> all = [this] { *moved = move(); };
    const auto call = [](void* function) { (*static_cast<std::function<void()>*>(function))(); };
    if (!services.is_lost(services.services)) services.touch(services.services, call, &all);
  }
};

CUfileError_t enqueue(const Transfer& given, CUstream stream) {
  if (opened == 0) return {CU_FILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};
  auto kept = std::make_unique<Transfer>(given);
  const abi::StreamWorkRange range{reinterpret_cast<std::uintptr_t>(given.base + *given.base_offset), *given.size,
                                   given.is_read};
  const std::string text =
      std::string("cuFile: a ") + (given.is_read ? "read" : "write") + " of " + std::to_string(*given.size) + " bytes";
  const abi::StreamWork work{
      [](void* state, const abi::StreamWorkServices* services) { static_cast<const Transfer*>(state)->run(*services); },
      [](void* state) { const std::unique_ptr<Transfer> last(static_cast<Transfer*>(state)); },
      kept.release(),
      text.c_str(),
      &range,
      1};
  return result_of(aiocuda_emulator_enqueue(stream, &work));
}

CUfileError_t transfer_async(CUfileHandle_t handle, bool is_read, void* base, const std::size_t* size,
                             const off_t* file_offset, const off_t* base_offset, ssize_t* moved, CUstream stream,
                             int* error = nullptr) {
  if (handle == nullptr) return {CU_FILE_HANDLE_NOT_REGISTERED, CUDA_SUCCESS};
  if (!base || !size || !file_offset || !base_offset || !moved || *file_offset < 0 || *base_offset < 0)
    return {CU_FILE_INVALID_VALUE, CUDA_SUCCESS};
  return enqueue({static_cast<const Handle*>(handle)->descriptor(), is_read, static_cast<std::byte*>(base), size,
                  file_offset, base_offset, moved, error},
                 stream);
}

// On a stream of its own, which the caller waits for.
ssize_t transfer(CUfileHandle_t handle, bool is_read, void* base, std::size_t size, off_t file_offset,
                 off_t base_offset) {
  CUstream stream = nullptr;
  if (cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return -CU_FILE_CUDA_DRIVER_ERROR;
  ssize_t moved = 0;
  int error = EIO;
  const CUfileError_t refused =
      transfer_async(handle, is_read, base, &size, &file_offset, &base_offset, &moved, stream, &error);
  const CUresult waited = cuStreamSynchronize(stream);
  cuStreamDestroy(stream);
  if (refused.err != CU_FILE_SUCCESS) return -refused.err;
  if (waited != CUDA_SUCCESS) return -CU_FILE_CUDA_DRIVER_ERROR;
  if (moved < 0) errno = error;
  return moved;
}

}  // namespace
}  // namespace aiocuda::emulator::cufile

namespace cufile = aiocuda::emulator::cufile;

CUFILE_API CUfileError_t cuFileGetVersion(int* version) {
  if (version == nullptr) return {CU_FILE_INVALID_VALUE, CUDA_SUCCESS};
  *version = cufile_version;
  return cufile::success;
}

CUFILE_API CUfileError_t cuFileDriverOpen() {
  ++cufile::opened;
  return cufile::success;
}
CUFILE_API CUfileError_t cuFileDriverClose_v2() {
  if (cufile::opened == 0) return {CU_FILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};
  --cufile::opened;
  return cufile::success;
}
CUFILE_API CUfileError_t cuFileDriverClose() { return cuFileDriverClose_v2(); }

CUFILE_API CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t* properties) {
  if (properties == nullptr) return {CU_FILE_INVALID_VALUE, CUDA_SUCCESS};
  *properties = {};
  return cufile::success;
}

CUFILE_API CUfileError_t cuFileHandleRegister(CUfileHandle_t* handle, CUfileDescr_t* described) {
  if (cufile::opened == 0) return {CU_FILE_DRIVER_NOT_INITIALIZED, CUDA_SUCCESS};
  if (handle == nullptr || described == nullptr) return {CU_FILE_INVALID_VALUE, CUDA_SUCCESS};
  if (described->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD) return {CU_FILE_IO_NOT_SUPPORTED, CUDA_SUCCESS};
  struct stat about{};
  if (::fstat(described->handle.fd, &about) != 0 || !(S_ISREG(about.st_mode) || S_ISBLK(about.st_mode)))
    return {CU_FILE_INVALID_FILE_TYPE, CUDA_SUCCESS};
  auto opened = std::make_unique<cufile::Handle>(described->handle.fd);
  if (opened->descriptor() < 0) return {CU_FILE_INVALID_FILE_TYPE, CUDA_SUCCESS};
  *handle = opened.release();
  return cufile::success;
}
CUFILE_API void cuFileHandleDeregister(CUfileHandle_t handle) {
  const std::unique_ptr<cufile::Handle> last(static_cast<cufile::Handle*>(handle));
}

// The host reaches all of a device's memory, and streams need nothing: there is nothing to be made ready.
CUFILE_API CUfileError_t cuFileBufRegister(const void* base, std::size_t, int) {
  return base ? cufile::success : CUfileError_t{CU_FILE_INVALID_VALUE, CUDA_SUCCESS};
}
CUFILE_API CUfileError_t cuFileBufDeregister(const void* base) { return cuFileBufRegister(base, 0, 0); }
CUFILE_API CUfileError_t cuFileStreamRegister(CUstream, unsigned) { return cufile::success; }
CUFILE_API CUfileError_t cuFileStreamDeregister(CUstream) { return cufile::success; }

CUFILE_API ssize_t cuFileRead(CUfileHandle_t handle, void* base, std::size_t size, off_t file_offset,
                              off_t base_offset) {
  return cufile::transfer(handle, true, base, size, file_offset, base_offset);
}
CUFILE_API ssize_t cuFileWrite(CUfileHandle_t handle, const void* base, std::size_t size, off_t file_offset,
                               off_t base_offset) {
  return cufile::transfer(handle, false, const_cast<void*>(base), size, file_offset, base_offset);
}
CUFILE_API CUfileError_t cuFileReadAsync(CUfileHandle_t handle, void* base, std::size_t* size, off_t* file_offset,
                                         off_t* base_offset, ssize_t* moved, CUstream stream) {
  return cufile::transfer_async(handle, true, base, size, file_offset, base_offset, moved, stream);
}
CUFILE_API CUfileError_t cuFileWriteAsync(CUfileHandle_t handle, void* base, std::size_t* size, off_t* file_offset,
                                          off_t* base_offset, ssize_t* moved, CUstream stream) {
  return cufile::transfer_async(handle, false, base, size, file_offset, base_offset, moved, stream);
}
