// A stand-in for NVIDIA's libcuda.so.1 that answers what its environment tells it to, so that the
// choice of a driver is tested on machines with and without a GPU.
#include <cstdlib>
#include <unistd.h>

namespace {
int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}
}  // namespace

extern "C" {
int cuInit(unsigned) {
  if (setting("FAKE_CRASH", 0)) std::abort();
  if (setting("FAKE_HANG", 0)) pause();
  return setting("FAKE_RESULT", 0);
}
int cuDriverGetVersion(int* version) {
  *version = setting("FAKE_VERSION", 13000);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = setting("FAKE_COUNT", 0);
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a fake explanation";
  return 0;
}
}
