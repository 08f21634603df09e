// Linking programs that were compiled as relocatable device code into one module image.
#pragma once

#include <string>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct LinkInput {
  std::string name;   // what messages call it
  std::string image;  // an object, or a whole program's image
};

enum class LinkStatus { linked, unresolved, failed };

struct LinkResult {
  LinkStatus status = LinkStatus::failed;
  std::string image;
  std::string log;  // what is wrong, one line each
};

// A whole program can be linked alone, with no other input. Takes about as long as running a linker; the results are
// kept in the cache of compiled kernels.
LinkResult link(std::vector<LinkInput> inputs);

// The device runtime is NVIDIA's libcudadevrt.a, which a GPU needs for graphs that kernels launch. The emulated driver
// has its functions itself, so a linker takes it and has nothing to link.
enum class InputKind { object, whole_program, device_runtime, text_without_image, unknown };

// Takes an input as a linker is given it: an image, or the text that stands for PTX, which becomes the image in it.
InputKind read_input(std::string& content);

// What is wrong with an input of another kind than object and whole_program, and what to do instead: a line.
std::string why_no_input(InputKind kind, const std::string& name);

}  // namespace aiocuda::emulator::nvrtc
