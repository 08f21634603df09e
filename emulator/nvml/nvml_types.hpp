// The part of NVML's interface that the emulated library implements: results, and structures as its documentation
// lays them out.
#pragma once
#include <cstdint>

namespace aiocuda::emulator::nvml {

enum Result : int {
  success = 0,
  error_uninitialized = 1,
  error_invalid_argument = 2,
  error_not_supported = 3,
  error_no_permission = 4,
  error_not_found = 6,
  error_insufficient_size = 7,
  error_driver_not_loaded = 9,
  error_timeout = 10,
  error_argument_version_mismatch = 25,
};

// The version field of a structure: its size, and its version in the highest byte.
template <class T>
constexpr unsigned version_of(unsigned version) {
  return static_cast<unsigned>(sizeof(T)) | version << 24;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct PciInfoExt {
  unsigned version;
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;
};

struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct Utilization {
  unsigned gpu, memory;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance_id, compute_instance_id;
};

struct DeviceAttributes {
  unsigned multiprocessor_count, shared_copy_engine_count, shared_decoder_count, shared_encoder_count,
      shared_jpeg_count, shared_ofa_count, gpu_instance_slice_count, compute_instance_slice_count;
  unsigned long long memory_size_mb;
};

struct DriverBranch {
  unsigned version;
  char branch[80];
};

enum class UuidForm : unsigned { text = 1, bytes = 2 };

struct Uuid {
  unsigned version;
  UuidForm form;
  union {
    char text[41];
    unsigned char bytes[16];
  };
};

struct Capabilities {
  unsigned version, mask;
};

struct C2cMode {
  unsigned is_c2c_enabled;
};

struct SystemEventSet {
  unsigned version;
  void* set;
};

struct SystemEventWait {
  unsigned version;
  unsigned timeout_ms;
  void* set;
  void* data;
  unsigned room, event_count;
};

struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency_us;
  int value_type, result;
  unsigned long long value;
};

}  // namespace aiocuda::emulator::nvml
