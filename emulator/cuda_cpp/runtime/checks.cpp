// See checks.hpp. Linked into modules that were compiled for checking.
#include "checks.hpp"

#include <cstdio>

extern "C" {
[[gnu::visibility("hidden")]] extern __thread aiocuda::emulator::runtime::Index3 blockDim;
}

namespace aiocuda::emulator::runtime {
namespace {

constexpr std::size_t longest_message = 300;

void report(unsigned thread, int line, const char* message) {
  if (services != nullptr && services->report_meeting != nullptr) services->report_meeting(thread, line, message);
}

}  // namespace

void tell_met(abi::Meeting meeting, unsigned warp, std::uint32_t lanes) {
  if (services != nullptr && services->met != nullptr) services->met(meeting, warp, lanes);
}

void check_barrier(const Block& b) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  unsigned first = threads;
  for (unsigned each = 0; each < threads; ++each) {
    if ((b.warps[each / warp_size].at_barrier & (std::uint32_t{1} << each % warp_size)) == 0) continue;
    if (first == threads) first = each;
    if (b.fibers[each].line == b.fibers[first].line) continue;
    char message[longest_message];
    std::snprintf(message, sizeof message,
                  "the threads of the block come to different barriers: thread %u waits at line %d and thread %u at "
                  "line %d. Every thread of a block must come to the same __syncthreads",
                  first, b.fibers[first].line, each, b.fibers[each].line);
    report(each, b.fibers[each].line, message);
    return;
  }
  if (first == threads || b.live == threads) return;
  char message[longest_message];
  std::snprintf(message, sizeof message,
                "%u threads of the block have returned before this barrier, at which %u wait. Every thread of a block "
                "must come to __syncthreads",
                threads - b.live, b.live);
  report(first, b.fibers[first].line, message);
}

void check_shuffle(const Block& b, unsigned warp, unsigned lane, std::uint32_t members) {
  const Fiber& reader = b.fibers[warp * warp_size + lane];
  const unsigned source = reader.argument % warp_size;
  if ((members & (std::uint32_t{1} << source)) != 0) return;
  const bool is_named = (reader.mask & (std::uint32_t{1} << source)) != 0;
  char message[longest_message];
  std::snprintf(message, sizeof message, "lane %u reads from lane %u, which %s (mask 0x%08x). Its value is undefined",
                lane, source, is_named ? "has returned or is not there" : "the mask does not name", reader.mask);
  report(warp * warp_size + lane, reader.line, message);
}

void check_mask(const Block&, unsigned warp, unsigned lane, std::uint32_t mask, int line) {
  if ((mask & (std::uint32_t{1} << lane)) != 0) return;
  char message[longest_message];
  std::snprintf(message, sizeof message,
                "lane %u calls a warp operation with mask 0x%08x, which does not name the lane itself", lane, mask);
  report(warp * warp_size + lane, line, message);
}

}  // namespace aiocuda::emulator::runtime
