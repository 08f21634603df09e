// The facts that the driver itself reads from a module's image: what kind of image it is, how long it is (the API
// passes no length), and the variables it exports with their sizes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace aiocuda::emulator {

enum class ImageKind {
  host_object,  // an ELF shared object for this machine: what the emulator loads
  relocatable,  // an ELF object for this machine: what it loads once it is linked
  gpu_binary,   // a cubin or a fat binary
  ptx,          // text for the real driver's compiler
  unknown,
};

// As much must be there to be looked at, where an image begins like an ELF file.
inline constexpr std::size_t least_elf_bytes = 64;

ImageKind kind_of_image(const void* image);

// The length of an ELF file that starts at `image`, from its own headers; 0 when they make no sense.
std::size_t elf_bytes(const void* image);

struct ElfVariable {
  std::uintptr_t offset;  // from the address the object is loaded at
  std::size_t bytes;
};

// The variables with dynamic linkage that the object defines, by symbol.
std::unordered_map<std::string, ElfVariable> elf_variables(const std::vector<std::byte>& file);

}  // namespace aiocuda::emulator
