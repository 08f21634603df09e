// Two devices and four threads for blocks, whatever the machine has.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  setenv("AIOCUDA_EMULATED_DEVICES", "2", 1);
  setenv("AIOCUDA_EMULATED_MEMORY", "1G", 1);
  setenv("AIOCUDA_EMULATED_THREADS", "4", 1);
  return doctest::Context(argc, argv).run();
}
