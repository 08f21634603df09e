// SHA-256 (FIPS 180-4), for naming cache entries by their content.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace aiocuda::emulator::nvrtc {

class Sha256 {
 public:
  Sha256& add(std::string_view data);
  // Adds the length first, so that no two sequences of fields give the same bytes.
  Sha256& add_field(std::string_view field);
  std::string hex();  // ends the computation

 private:
  void block(const unsigned char* data);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> pending_{};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;
};

inline std::string sha256(std::string_view data) { return Sha256().add(data).hex(); }

}  // namespace aiocuda::emulator::nvrtc
