// The tests compile into a cache directory of their own, empty at the start, unless one is given.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "support.hpp"

int main(int argc, char** argv) {
  const nvrtc_tests::ScratchDirectory cache;
  ::setenv("AIOCUDA_CACHE_DIR", cache.path().c_str(), 0);
  return doctest::Context(argc, argv).run();
}
