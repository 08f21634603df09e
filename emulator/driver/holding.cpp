// Calls that tests hold: see holding.hpp.
#include "holding.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "settings.hpp"

namespace aiocuda::emulator {
namespace {

std::string read_to_end(int file) {
  std::string found;
  char piece[64];
  for (;;) {
    const ssize_t size = ::read(file, piece, sizeof piece);
    if (size > 0) found.append(piece, static_cast<std::size_t>(size));
    if (size == 0 || (size < 0 && errno != EINTR)) return found;
  }
}

}  // namespace

CUresult held(const char* function, int device) {
  if (settings().hold.empty()) [[likely]]
    return CUDA_SUCCESS;
  const std::string path = settings().hold + "/" + function + "." + std::to_string(device);
  int file = -1;
  do {
    file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (file < 0 && errno == EINTR);
  if (file < 0) return CUDA_SUCCESS;  // there is none
  unlink(path.c_str());
  const std::string answer = read_to_end(file);
  close(file);
  return static_cast<CUresult>(std::atoi(answer.c_str()));
}

}  // namespace aiocuda::emulator
