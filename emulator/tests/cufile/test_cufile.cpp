// The emulated cuFile: what moves, what it says of that, in which order, and that races with it are found.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "cufile_api.hpp"

extern "C" {
CUfileError_t cuFileGetVersion(int* version);
CUfileError_t cuFileDriverOpen();
CUfileError_t cuFileDriverClose_v2();
CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t* properties);
CUfileError_t cuFileHandleRegister(CUfileHandle_t* handle, CUfileDescr_t* described);
void cuFileHandleDeregister(CUfileHandle_t handle);
ssize_t cuFileRead(CUfileHandle_t, void* base, std::size_t size, off_t file_offset, off_t base_offset);
ssize_t cuFileWrite(CUfileHandle_t, const void* base, std::size_t size, off_t file_offset, off_t base_offset);
CUfileError_t cuFileReadAsync(CUfileHandle_t, void* base, std::size_t*, off_t*, off_t*, ssize_t*, CUstream);
CUfileError_t cuFileWriteAsync(CUfileHandle_t, void* base, std::size_t*, off_t*, off_t*, ssize_t*, CUstream);
std::size_t aiocuda_emulator_take_race_reports(char* text, std::size_t size);
}

namespace {

constexpr std::size_t size = 100'003;

// A file of numbered bytes, a device's memory, and two streams that do not wait for each other.
class World {
 public:
  World() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    CUdevice device = 0;
    REQUIRE(cuDevicePrimaryCtxRetain(&context_, device) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context_) == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc(&memory, 2 * size) == CUDA_SUCCESS);
    for (CUstream& stream : streams) REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    path_ = (std::filesystem::temp_directory_path() / "aiocuda-cufile-XXXXXX").string();
    descriptor = ::mkstemp(path_.data());
    REQUIRE(descriptor >= 0);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(3));
    REQUIRE(::write(descriptor, bytes.data(), size) == static_cast<ssize_t>(size));
    REQUIRE(cuFileDriverOpen().err == CU_FILE_SUCCESS);
    CUfileDescr_t described{CU_FILE_HANDLE_TYPE_OPAQUE_FD, {descriptor}, nullptr};
    REQUIRE(cuFileHandleRegister(&handle, &described).err == CU_FILE_SUCCESS);
    reports();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    cuFileHandleDeregister(handle);
    cuFileDriverClose_v2();
    ::close(descriptor);
    ::unlink(path_.c_str());
    for (CUstream stream : streams) cuStreamDestroy(stream);
    cuMemFree(memory);
    cuDevicePrimaryCtxRelease(0);
  }

  void* base() const { return reinterpret_cast<void*>(memory); }
  std::vector<unsigned char> on_device(std::size_t offset = 0) const {
    std::vector<unsigned char> found(size);
    REQUIRE(cuMemcpyDtoH(found.data(), memory + offset, size) == CUDA_SUCCESS);
    return found;
  }
  static std::string reports() {
    std::string text(1 << 16, '\0');
    text.resize(aiocuda_emulator_take_race_reports(text.data(), text.size()));
    return text;
  }

  std::vector<unsigned char> bytes = std::vector<unsigned char>(size);
  CUdeviceptr memory = 0;
  std::array<CUstream, 2> streams{};
  int descriptor = -1;
  CUfileHandle_t handle = nullptr;

 private:
  CUcontext context_ = nullptr;
  std::string path_;
};

struct Numbers {
  std::size_t count = size;
  off_t in_file = 0, in_memory = 0;
  ssize_t moved = -77;
};

}  // namespace

TEST_CASE("a read and a write of a caller who waits") {
  const World world;
  CHECK(cuFileRead(world.handle, world.base(), size, 0, 7) == static_cast<ssize_t>(size));
  CHECK(world.on_device(7) == world.bytes);
  CHECK(cuFileRead(world.handle, world.base(), size, 100'000, 0) == 3);
  CHECK(cuFileRead(world.handle, world.base(), size, size, 0) == 0);
  CHECK(cuFileWrite(world.handle, world.base(), 10, size, 7) == 10);
  std::array<unsigned char, 10> tail{};
  REQUIRE(::pread(world.descriptor, tail.data(), 10, size) == 10);
  CHECK(std::equal(tail.begin(), tail.end(), world.bytes.begin()));
}

TEST_CASE("work of a stream moves when the stream comes there, by the numbers of then") {
  const World world;
  Numbers read, write;
  const CUstream stream = world.streams[0];
  struct Later {
    Numbers* numbers;
    int descriptor;
  } later{&write, world.descriptor};
  CHECK(cuFileReadAsync(world.handle, world.base(), &read.count, &read.in_file, &read.in_memory, &read.moved, stream)
            .err == CU_FILE_SUCCESS);
  const auto change = [](void* given) {
    const Later& found = *static_cast<Later*>(given);
    found.numbers->count = 5;
    found.numbers->in_file = 200'000;
  };
  CHECK(cuLaunchHostFunc(stream, change, &later) == CUDA_SUCCESS);
  CHECK(
      cuFileWriteAsync(world.handle, world.base(), &write.count, &write.in_file, &write.in_memory, &write.moved, stream)
          .err == CU_FILE_SUCCESS);
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(read.moved == static_cast<ssize_t>(size));
  CHECK(write.moved == 5);
  CHECK(world.on_device() == world.bytes);
  CHECK(::lseek(world.descriptor, 0, SEEK_END) == 200'005);
  CHECK(World::reports().empty());
}

TEST_CASE("what goes wrong with a file is told in the caller's number, and the stream goes on") {
  const World world;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CUfileHandle_t handle = nullptr;
  CUfileDescr_t described{CU_FILE_HANDLE_TYPE_OPAQUE_FD, {ends[0]}, nullptr};
  CHECK(cuFileHandleRegister(&handle, &described).err == CU_FILE_INVALID_FILE_TYPE);
  described.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
  CHECK(cuFileHandleRegister(&handle, &described).err == CU_FILE_IO_NOT_SUPPORTED);
  ::close(ends[0]);
  ::close(ends[1]);
  const int reading = ::open(("/proc/self/fd/" + std::to_string(world.descriptor)).c_str(), O_RDONLY);
  described = {CU_FILE_HANDLE_TYPE_OPAQUE_FD, {reading}, nullptr};
  REQUIRE(cuFileHandleRegister(&handle, &described).err == CU_FILE_SUCCESS);
  Numbers numbers;
  CHECK(cuFileWriteAsync(handle, world.base(), &numbers.count, &numbers.in_file, &numbers.in_memory, &numbers.moved,
                         world.streams[0])
            .err == CU_FILE_SUCCESS);
  CHECK(cuStreamSynchronize(world.streams[0]) == CUDA_SUCCESS);
  CHECK(numbers.moved == -1);
  CHECK(cuFileWrite(handle, world.base(), size, 0, 0) == -1);
  CHECK(errno == EBADF);
  CHECK(cuFileReadAsync(nullptr, world.base(), &numbers.count, &numbers.in_file, &numbers.in_memory, &numbers.moved,
                        world.streams[0])
            .err == CU_FILE_HANDLE_NOT_REGISTERED);
  CHECK(cuFileReadAsync(handle, nullptr, &numbers.count, &numbers.in_file, &numbers.in_memory, &numbers.moved,
                        world.streams[0])
            .err == CU_FILE_INVALID_VALUE);
  cuFileHandleDeregister(handle);
  ::close(reading);
}

TEST_CASE("a race with a read is found") {
  const World world;
  Numbers numbers;
  CHECK(cuMemsetD8Async(world.memory + 10, 1, 10, world.streams[1]) == CUDA_SUCCESS);
  CHECK(cuFileReadAsync(world.handle, world.base(), &numbers.count, &numbers.in_file, &numbers.in_memory,
                        &numbers.moved, world.streams[0])
            .err == CU_FILE_SUCCESS);
  for (CUstream stream : world.streams) CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(World::reports().find("cuFile: a read of 100003 bytes") != std::string::npos);
}

TEST_CASE("it says what it is, and refuses what comes before it is opened") {
  int version = 0;
  CHECK(cuFileGetVersion(&version).err == CU_FILE_SUCCESS);
  CHECK(version == cufile_version);
  CUfileHandle_t handle = nullptr;
  CUfileDescr_t described{CU_FILE_HANDLE_TYPE_OPAQUE_FD, {0}, nullptr};
  CHECK(cuFileHandleRegister(&handle, &described).err == CU_FILE_DRIVER_NOT_INITIALIZED);
  CHECK(cuFileDriverClose_v2().err == CU_FILE_DRIVER_NOT_INITIALIZED);
  CUfileDrvProps_t properties{};
  properties.nvfs.major_version = 9;
  CHECK(cuFileDriverGetProperties(&properties).err == CU_FILE_SUCCESS);
  CHECK(properties.nvfs.major_version == 0);
}

int main(int argc, char** argv) {
  setenv("AIOCUDA_EMULATED_DEVICES", "1", 1);
  return doctest::Context(argc, argv).run();
}
