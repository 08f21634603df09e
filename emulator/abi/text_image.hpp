// A compiled image as text: what nvrtcGetPTX answers, so that programs may treat it as the text that PTX is. It
// begins as PTX does, and carries the image in comments, in base64 (RFC 4648, section 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aiocuda::emulator::abi {

inline constexpr std::string_view text_image_marker = "\n//aiocuda-image ";
inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string text_of_image(std::string_view image, int architecture) {
  constexpr std::size_t bytes_of_line = 84;  // a multiple of three, so that no line but the last is padded
  std::string text =
      "//\n// Compiled by aiocuda's emulated NVRTC: in place of PTX, code for the processor of this machine.\n//\n"
      "\n.version 9.0\n.target sm_" +
      std::to_string(architecture) + "\n.address_size 64\n";
  text += std::string(text_image_marker) + std::to_string(image.size());
  text.reserve(text.size() + image.size() * 4 / 3 + image.size() / bytes_of_line * 3 + 16);
  for (std::size_t at = 0; at < image.size(); at += 3) {
    if (at % bytes_of_line == 0) text += "\n//";
    const std::size_t left = image.size() - at;
    const auto byte = [&](std::size_t i) {
      return i < left ? static_cast<std::uint32_t>(static_cast<unsigned char>(image[at + i])) : 0u;
    };
    const std::uint32_t three = byte(0) << 16 | byte(1) << 8 | byte(2);
    text += base64_digits[three >> 18];
    text += base64_digits[three >> 12 & 63];
    text += left > 1 ? base64_digits[three >> 6 & 63] : '=';
    text += left > 2 ? base64_digits[three & 63] : '=';
  }
  text += '\n';
  return text;
}

// The image that a text carries; nothing where it carries none, or not all of it.
inline std::optional<std::string> image_of_text(std::string_view text) {
  const std::size_t marker = text.find(text_image_marker);
  if (marker == std::string_view::npos) return std::nullopt;
  std::size_t at = marker + text_image_marker.size();
  std::size_t size = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    size = size * 10 + static_cast<std::size_t>(text[at] - '0');
    if (size > text.size()) return std::nullopt;
  }
  static const std::array<signed char, 256> values = [] {
    std::array<signed char, 256> made;
    made.fill(-1);
    for (std::size_t digit = 0; digit < base64_digits.size(); ++digit) {
      made[static_cast<unsigned char>(base64_digits[digit])] = static_cast<signed char>(digit);
    }
    return made;
  }();
  std::string image;
  image.reserve(size + 2);
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (; at < text.size() && image.size() < size; ++at) {
    if (text.substr(at, 3) == "\n//") {
      at += 2;
      continue;
    }
    const signed char digit = values[static_cast<unsigned char>(text[at])];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    image += static_cast<char>(bits >> held & 255);
  }
  if (image.size() != size) return std::nullopt;
  return image;
}

}  // namespace aiocuda::emulator::abi
