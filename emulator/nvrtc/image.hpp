// A finished module image, looked into: which symbols the table of kernels points at, and how much static
// shared memory each kernel has (which only the compiler knows), written into the image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct ImageContents {
  bool valid = false;
  std::vector<std::string> lowered_names;          // of each entry of the table; empty where not exported
  std::vector<std::uint64_t> static_shared_bytes;  // of each entry
};

// Reads the table's `count` entries and fills in the static shared memory of the kernels among them.
ImageContents complete_image(std::string& image, std::size_t count);

}  // namespace aiocuda::emulator::nvrtc
