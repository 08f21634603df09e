// Before and beside contexts: versions, error texts, function addresses, settings, devices.
#include <cstring>
#include <set>
#include <string>

#include "settings.hpp"
#include "support.hpp"

using namespace driver_test;
using aiocuda::emulator::parse_settings;

TEST_CASE("every error code of cuda.h has its name and a meaning") {
  const std::pair<CUresult, const char*> known[] = {
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
      {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
  };
  for (const auto& [code, expected] : known) {
    const char* name = nullptr;
    const char* meaning = nullptr;
    CHECK_OK(cuGetErrorName(code, &name));
    CHECK_OK(cuGetErrorString(code, &meaning));
    CHECK(std::string(name) == expected);
    CHECK(std::strlen(meaning) > 5);
  }
  const char* name = "";
  CHECK(cuGetErrorName(static_cast<CUresult>(12345), &name) == CUDA_ERROR_INVALID_VALUE);
  CHECK(name == nullptr);
}

TEST_CASE("the driver says that it is of CUDA 13.5") {
  int version = 0;
  CHECK_OK(cuDriverGetVersion(&version));
  CHECK(version == 13050);
  CHECK_OK(cuInit(0));
  CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an address is of the newest ABI that the asked version knows") {
  void* old_abi = nullptr;
  void* new_abi = nullptr;
  void* missing = &old_abi;
  CUdriverProcAddressQueryResult status;
  CHECK_OK(cuGetProcAddress("cuStreamGetCaptureInfo", &old_abi, 11030, 0, &status));
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK_OK(cuGetProcAddress("cuStreamGetCaptureInfo", &new_abi, 12030, 0, nullptr));
  CHECK(new_abi == reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v3));
  CHECK(old_abi != new_abi);
  CHECK_OK(cuGetProcAddress("cuStreamGetDevice", &missing, 9000, 0, &status));
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(missing == nullptr);
  CHECK_OK(cuGetProcAddress("cuNoSuchFunction", &missing, 13000, 0, &status));
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(cuGetProcAddress("cuInit", &missing, 99000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", &missing, 12000, 8, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("what the emulator does not have answers that it is not supported") {
  const Device device;
  CUtexref reference = nullptr;
  CUmemGenericAllocationHandle allocation = 0;
  CHECK(cuMulticastCreate(&allocation, nullptr) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(cuTexRefCreate(&reference) == CUDA_ERROR_NOT_SUPPORTED);
  void* address = nullptr;
  CHECK_OK(cuGetProcAddress("cuGraphCreate", &address, 13000, 0, nullptr));
  CHECK(address != nullptr);
  const void* table = nullptr;
  const CUuuid id{};
  CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("what the emulator does not have reads 0 among the attributes") {
  REQUIRE_OK(cuInit(0));
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
        CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED}) {
    int value = -1;
    CHECK_OK(cuDeviceGetAttribute(&value, attribute, 0));
    CHECK_MESSAGE(value == 0, "attribute ", static_cast<int>(attribute));
  }
}

TEST_CASE("settings of core dumps are kept, and no dump can be asked for") {
  REQUIRE_OK(cuInit(0));
  const auto set = [](CUcoredumpSettings setting, bool value) {
    std::size_t bytes = sizeof value;
    return cuCoredumpSetAttributeGlobal(setting, &value, &bytes);
  };
  const auto get = [](CUcoredumpSettings setting) {
    bool value = false;
    std::size_t bytes = sizeof value;
    CHECK_OK(cuCoredumpGetAttributeGlobal(setting, &value, &bytes));
    return value;
  };
  CHECK(get(CU_COREDUMP_TRIGGER_HOST));
  CHECK_OK(set(CU_COREDUMP_TRIGGER_HOST, false));
  CHECK_FALSE(get(CU_COREDUMP_TRIGGER_HOST));
  CHECK_OK(set(CU_COREDUMP_TRIGGER_HOST, true));
  CHECK(set(CU_COREDUMP_ENABLE_ON_EXCEPTION, true) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK_OK(set(CU_COREDUMP_ENABLE_ON_EXCEPTION, false));
  CHECK_FALSE(get(CU_COREDUMP_ENABLE_ON_EXCEPTION));
  char name[] = "a file";
  std::size_t bytes = sizeof name;
  CHECK_OK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, name, &bytes));
  char found[32] = {};
  bytes = sizeof found;
  CHECK_OK(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, found, &bytes));
  CHECK(std::string(found) == name);
  std::string too_long(2000, 'x');
  bytes = too_long.size();
  CHECK(cuCoredumpSetAttributeGlobal(CU_COREDUMP_PIPE, too_long.data(), &bytes) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("settings are read with their suffixes, and nonsense is an error that names the variable") {
  CHECK(parse_settings({}).devices == 1);
  CHECK(parse_settings({}).threads >= 1);
  CHECK(parse_settings({.devices = "0"}).devices == 0);
  CHECK(parse_settings({.memory = "512M", .threads = "3"}).memory_bytes == std::size_t{512} << 20);
  CHECK(parse_settings({.memory = "2G", .threads = "3"}).threads == 3);
  CHECK(parse_settings({.memory = "1048576"}).memory_bytes == std::size_t{1} << 20);
  CHECK(parse_settings({}).hold == "");
  CHECK(parse_settings({.hold = "/somewhere"}).hold == "/somewhere");
  CHECK(parse_settings({}).dropped_wait == 0);
  CHECK(parse_settings({.dropped_wait = "3"}).dropped_wait == 3);
  CHECK(parse_settings({.dropped_wait = "0"}).error.find("AIOCUDA_EMULATOR_DROP_WAIT") != std::string::npos);
  CHECK(parse_settings({.devices = "65"}).error.find("AIOCUDA_EMULATED_DEVICES") != std::string::npos);
  CHECK(parse_settings({.devices = "2x"}).error.find("'2x'") != std::string::npos);
  CHECK(parse_settings({.memory = "-1"}).error.find("AIOCUDA_EMULATED_MEMORY") != std::string::npos);
  CHECK(parse_settings({.memory = "5T"}).error.find("AIOCUDA_EMULATED_MEMORY") != std::string::npos);
  CHECK(parse_settings({.threads = "0"}).error.find("AIOCUDA_EMULATED_THREADS") != std::string::npos);
  CHECK_FALSE(parse_settings({}).loads_eagerly);
  CHECK_FALSE(parse_settings({.module_loading = "LAZY"}).loads_eagerly);
  CHECK(parse_settings({.module_loading = "EAGER"}).loads_eagerly);
}

TEST_CASE("what is checked and shuffled is off unless it is asked for, and unknown words are errors") {
  CHECK_FALSE(parse_settings({}).checks.any());
  CHECK_FALSE(parse_settings({.check = ""}).checks.any());
  const auto races = parse_settings({.check = "races"}).checks;
  CHECK((races.races && !races.memory && !races.init && !races.sync));
  const auto others = parse_settings({.check = "sync,init,memory"}).checks;
  CHECK((others.sync && others.init && others.memory && !others.races));
  CHECK_FALSE(parse_settings({.check = "races,"}).error.empty());
  CHECK(parse_settings({.check = "race"}).error.find("AIOCUDA_EMULATOR_CHECK") != std::string::npos);
  CHECK_FALSE(parse_settings({}).shuffle_seed.has_value());
  CHECK(parse_settings({.shuffle = "0"}).shuffle_seed == 0u);
  CHECK(parse_settings({.shuffle = "18446744073709551615"}).shuffle_seed == ~std::uint64_t{0});
  CHECK(parse_settings({.shuffle = "-1"}).error.find("AIOCUDA_EMULATOR_SHUFFLE") != std::string::npos);
  CHECK(parse_settings({.shuffle = "1x"}).error.find("'1x'") != std::string::npos);
  CHECK(parse_settings({}).peer_access);
  CHECK_FALSE(parse_settings({.peer_access = "0"}).peer_access);
  CHECK(parse_settings({.peer_access = "2"}).error.find("AIOCUDA_EMULATED_PEER_ACCESS") != std::string::npos);
}

TEST_CASE("devices are told apart and agree with their attributes") {
  REQUIRE_OK(cuInit(0));
  int count = 0;
  CHECK_OK(cuDeviceGetCount(&count));
  CHECK(count == 2);
  std::set<std::string> ids, uuids;
  for (CUdevice device = 0; device < count; ++device) {
    char id[16] = {};
    CUuuid uuid;
    CUdevice found = -1;
    CHECK_OK(cuDeviceGetPCIBusId(id, sizeof id, device));
    CHECK_OK(cuDeviceGetByPCIBusId(&found, id));
    CHECK(found == device);
    CHECK_OK(cuDeviceGetUuid(&uuid, device));
    ids.insert(id);
    uuids.insert(std::string(uuid.bytes, sizeof uuid.bytes));
    std::size_t bytes = 0;
    CHECK_OK(cuDeviceTotalMem(&bytes, device));
    CHECK(bytes == std::size_t{1} << 30);
    for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
      int value = -12345;
      CHECK_OK(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device));
      CHECK(value != -12345);
    }
  }
  CHECK(ids.size() == 2);
  CHECK(uuids.size() == 2);
  int value = 0;
  CHECK_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  CHECK(value == 4);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 2) == CUDA_ERROR_INVALID_DEVICE);
  CUdevice device = 0;
  CHECK(cuDeviceGet(&device, 2) == CUDA_ERROR_INVALID_DEVICE);
  CHECK_OK(cuDeviceCanAccessPeer(&value, 0, 1));
  CHECK(value == 1);
  CHECK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1) == CUDA_ERROR_INVALID_DEVICE);
}
