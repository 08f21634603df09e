// Modules, libraries, functions and kernels: loading, names, variables, attributes, and their end.
#include <atomic>
#include <cstring>
#include <thread>

#include "support.hpp"

using namespace driver_test;

namespace {

// The test module as a library, which needs no context.
class Library {
 public:
  Library() {
    const std::vector<char> image = read_file(TEST_MODULE_PATH);
    REQUIRE_OK(cuLibraryLoadData(&handle_, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  ~Library() { cuLibraryUnload(handle_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  operator CUlibrary() const { return handle_; }
  CUkernel kernel(const char* name) const {
    CUkernel kernel = nullptr;
    REQUIRE_OK(cuLibraryGetKernel(&kernel, handle_, name));
    return kernel;
  }

 private:
  CUlibrary handle_ = nullptr;
};

}  // namespace

TEST_CASE("what only a GPU can run is told apart from what nobody can") {
  const Device device;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CHECK(cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n") == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoadData(&module, "// made by a compiler\n\n.version 8.0\n") == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoadData(&module, "hello") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(cuModuleLoadData(&module, "") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(cuModuleLoadData(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  std::vector<char> cubin = read_file(TEST_MODULE_PATH);
  cubin[18] = static_cast<char>(190);
  cubin[19] = 0;
  CHECK(cuModuleLoadData(&module, cubin.data()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  const std::uint32_t fat_binary[] = {0xba55ed50, 0, 0, 0};
  CHECK(cuModuleLoadData(&module, fat_binary) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(cuModuleLoad(&module, "/nowhere/at/all") == CUDA_ERROR_FILE_NOT_FOUND);
  CHECK(cuLibraryLoadFromFile(&library, "/nowhere/at/all", nullptr, nullptr, 0, nullptr, nullptr, 0) ==
        CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_CASE("a module's functions are found by name") {
  const Device device;
  const Module module;
  CUfunction function = nullptr;
  CHECK(cuModuleGetFunction(&function, module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  CHECK_OK(cuFuncGetName(&name, module.function("append")));
  CHECK(std::string(name) == "append");
  CUmodule owner = nullptr;
  CHECK_OK(cuFuncGetModule(&owner, module.function("append")));
  CHECK(owner == static_cast<CUmodule>(module));
  unsigned count = 0;
  CHECK_OK(cuModuleGetFunctionCount(&count, module));
  CHECK(count == 15);
  std::vector<CUfunction> all(count);
  CHECK_OK(cuModuleEnumerateFunctions(all.data(), count, module));
  CHECK(all[1] == module.function("append"));
  CHECK(cuModuleUnload(reinterpret_cast<CUmodule>(0x100)) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("parameters are described as they are packed") {
  const Device device;
  const Library library;
  std::size_t offset = 0, bytes = 0;
  CHECK_OK(cuKernelGetParamInfo(library.kernel("sum"), 1, &offset, &bytes));
  CHECK(offset == 32);
  CHECK(bytes == 32);
  CHECK(cuKernelGetParamInfo(library.kernel("sum"), 3, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("each context has its own copy of a module's variables") {
  const Library library;
  int values[2] = {};
  for (CUdevice ordinal = 0; ordinal < 2; ++ordinal) {
    const Device device(ordinal);
    const Stream stream;
    const SharedInts<1> out;
    CUfunction count = nullptr;
    REQUIRE_OK(cuKernelGetFunction(&count, library.kernel("count")));
    for (int each = 0; each < 3; ++each) REQUIRE_OK(launch(count, stream, 1, out.data()));
    REQUIRE_OK(cuStreamSynchronize(stream));
    values[ordinal] = out[0];
  }
  CHECK(values[0] == 10);
  CHECK(values[1] == 10);
}

TEST_CASE("a module's variables are found with their size, and can be copied to") {
  const Device device;
  const Module module;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  CHECK_OK(cuModuleGetGlobal(&address, &bytes, module, "module_table"));
  CHECK(bytes == 64);
  CHECK_OK(cuModuleGetGlobal(&address, &bytes, module, "module_counter"));
  CHECK(bytes == 4);
  CHECK(cuModuleGetGlobal(&address, nullptr, module, "printf") == CUDA_ERROR_NOT_FOUND);
  const int start = 100;
  CHECK_OK(cuMemcpyHtoD(address, &start, sizeof start));
  const SharedInts<1> out;
  REQUIRE_OK(launch(module.function("count"), nullptr, 1, out.data()));
  CHECK_OK(cuCtxSynchronize());
  CHECK(out[0] == 101);
}

TEST_CASE("a module unloaded while its kernel runs is unmapped only afterwards") {
  const Device device;
  Module module;
  const Stream stream;
  const SharedInts<2> flags;
  REQUIRE_OK(launch(module.function("wait_for"), stream, 1, flags.data(), flags.data() + 1));
  REQUIRE_OK(launch(module.function("add"), stream, 1, flags.data(), 1));
  const CUfunction function = module.function("add");
  flags.wait_until_set(1);
  CHECK_OK(module.unload());
  CHECK(launch(function, stream, 1, flags.data(), 1) == CUDA_ERROR_INVALID_HANDLE);
  flags.set(0, 1);
  CHECK_OK(cuStreamSynchronize(stream));
  CHECK(flags[0] == 2);
}

TEST_CASE("unloading a library waits for the contexts that have used it") {
  const Device device;
  const Stream stream;
  const SharedInts<2> flags;
  CUlibrary library = nullptr;
  const std::vector<char> image = read_file(TEST_MODULE_PATH);
  REQUIRE_OK(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel wait_for = nullptr;
  REQUIRE_OK(cuLibraryGetKernel(&wait_for, library, "wait_for"));
  REQUIRE_OK(launch(reinterpret_cast<CUfunction>(wait_for), stream, 1, flags.data(), flags.data() + 1));
  flags.wait_until_set(1);
  CUcontext context = nullptr;
  REQUIRE_OK(cuCtxGetCurrent(&context));
  std::atomic<bool> has_begun = false;
  CUresult state = CUDA_ERROR_UNKNOWN;
  std::thread unloading([&] {
    cuCtxSetCurrent(context);
    has_begun = true;
    cuLibraryUnload(library);
    state = cuStreamQuery(stream);
  });
  while (!has_begun) std::this_thread::yield();
  for (int turn = 0; turn < 1000; ++turn) std::this_thread::yield();
  flags.set(0, 1);
  unloading.join();
  CHECK(state == CUDA_SUCCESS);
  CHECK(cuLibraryUnload(library) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a kernel stands for its function in the current context") {
  const Device device;
  const Library library;
  const SharedInts<4> out;
  const CUkernel add = library.kernel("add");
  REQUIRE_OK(launch(reinterpret_cast<CUfunction>(add), nullptr, 4, out.data(), 2));
  CHECK_OK(cuCtxSynchronize());
  CHECK(out[3] == 2);
  CUlibrary owner = nullptr;
  CHECK_OK(cuKernelGetLibrary(&owner, add));
  CHECK(owner == static_cast<CUlibrary>(library));
  CUmodule module = nullptr;
  CHECK_OK(cuLibraryGetModule(&module, library));
  CHECK(cuModuleUnload(module) == CUDA_ERROR_NOT_PERMITTED);
  unsigned count = 0;
  CHECK_OK(cuLibraryGetKernelCount(&count, library));
  CHECK(count == 15);
}

TEST_CASE("attributes are the kernel's own, and the opt-in for shared memory is kept by device") {
  const Device device;
  const Library library;
  const CUkernel bounded = library.kernel("bounded");
  int value = 0;
  CHECK_OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded, 0));
  CHECK(value == 64);
  CHECK_OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, bounded, 0));
  CHECK(value == 40 * 1024);
  CHECK_OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, bounded, 0));
  CHECK(value == 24);
  CHECK_OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bounded, 0));
  CHECK(value == 8 * 1024);
  CHECK_OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024, bounded, 0));
  CHECK_OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bounded, 1));
  CHECK(value == 8 * 1024);
  CUfunction function = nullptr;
  REQUIRE_OK(cuKernelGetFunction(&function, bounded));
  CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  CHECK(value == 100 * 1024);
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 * 1024) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 10) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("occupancy is limited by threads, by shared memory and by the number of blocks") {
  const Device device;
  const Module module;
  int blocks = 0, grid = 0, block = 0;
  CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 256, 0));
  CHECK(blocks == 8);
  CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 32, 0));
  CHECK(blocks == 32);
  CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 32, 48 * 1024));
  CHECK(blocks == 4);
  CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("bounded"), 128, 0));
  CHECK(blocks == 0);
  CHECK_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, module.function("add"), nullptr, 0, 0));
  CHECK(block == 1024);
  CHECK(grid == 2 * 4);
  CHECK_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, module.function("add"), nullptr, 0, 100));
  CHECK(block <= 100);
  std::size_t bytes = 0;
  CHECK_OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, module.function("add"), 2, 256));
  CHECK(bytes == 48 * 1024);  // what may be asked for without opting in
  REQUIRE_OK(cuFuncSetAttribute(module.function("add"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200 * 1024));
  CHECK_OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, module.function("add"), 2, 256));
  CHECK(bytes == 113 * 1024);
  CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, module.function("add"), 0, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("as many clusters fit as their blocks, and one at least") {
  const Device device;
  const Module module;
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  CUlaunchConfig config{};
  config.gridDimX = 128;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 256;
  config.attrs = &attribute;
  int clusters = -1, blocks = 0;
  CHECK_OK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config));
  CHECK(clusters == 4 * 8);
  config.numAttrs = 1;
  attribute.value.clusterDim = {2, 1, 1};
  CHECK_OK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config));
  CHECK(clusters == 4 * 8 / 2);
  attribute.value.clusterDim = {8, 1, 1};
  config.blockDimX = 1024;
  CHECK_OK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config));
  CHECK(clusters == 1);
  attribute.value.clusterDim = {16, 1, 1};
  CHECK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.blockDimX = 256;
  attribute.value.clusterDim = {1, 1, 1};
  CHECK_OK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config));
  CHECK(clusters == 4 * 8);
  CHECK_OK(cuOccupancyMaxPotentialClusterSize(&blocks, module.function("add"), &config));
  CHECK(blocks == 8);
  REQUIRE_OK(cuFuncSetAttribute(module.function("add"), CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  CHECK_OK(cuOccupancyMaxPotentialClusterSize(&blocks, module.function("add"), &config));
  CHECK(blocks == 16);
  config.blockDimX = 2048;
  CHECK(cuOccupancyMaxActiveClusters(&clusters, module.function("add"), &config) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a kernel's parameters are described only where a context is current") {
  REQUIRE_OK(cuInit(0));
  REQUIRE_OK(cuCtxSetCurrent(nullptr));
  const Library library;
  std::size_t offset = 77, bytes = 77;
  CHECK(cuKernelGetParamInfo(library.kernel("add"), 0, &offset, &bytes) == CUDA_ERROR_INVALID_CONTEXT);
  const Device device;
  CHECK_OK(cuKernelGetParamInfo(library.kernel("add"), 0, &offset, &bytes));
  CHECK(offset == 0);
  CHECK(bytes == sizeof(void*));
}

TEST_CASE("the name of no function at all is asked for in vain") {
  const Device device;
  const char* name = nullptr;
  CHECK(cuKernelGetName(&name, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuFuncGetName(&name, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(name == nullptr);
}

TEST_CASE("images whose headers make no sense are refused") {
  const Device device;
  const std::vector<char> image = read_file(TEST_MODULE_PATH);
  CUmodule module = nullptr;
  std::vector<char> no_segments = image;
  no_segments[54] = 1;  // the size of a program header
  CHECK(cuModuleLoadData(&module, no_segments.data()) == CUDA_ERROR_INVALID_IMAGE);
  std::vector<char> endless = image;
  endless[40 + 7] = 1;  // where the section headers are
  CHECK(cuModuleLoadData(&module, endless.data()) == CUDA_ERROR_INVALID_IMAGE);
}
