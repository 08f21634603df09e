// A finished module image, looked into: which symbols the table of kernels points at, and how much static
// shared memory each kernel has (which only the compiler knows), written into the image.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct ImageContents {
  bool valid = false;
  std::vector<std::string> lowered_names;          // of each entry of the units' tables; empty where not exported
  std::vector<std::uint64_t> static_shared_bytes;  // of each entry
};

// Reads the tables of an image's units and fills in the static shared memory of the kernels in them.
ImageContents complete_image(std::string& image);

// The symbols of a relocatable object that others can see, or that it wants from others.
struct ObjectSymbols {
  std::vector<std::string> defined;  // once among all objects of an image
  std::vector<std::string> shared;   // in any number of them: inline functions, templates
  std::vector<std::string> wanted;
};

// Nothing where it is no such object of this machine's.
std::optional<ObjectSymbols> symbols_of_object(std::string& object);
bool is_shared_object(std::string& image);

}  // namespace aiocuda::emulator::nvrtc
