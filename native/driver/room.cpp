// Room: see room.hpp.
#include "room.hpp"

#include "../dataflow/timeline.hpp"

namespace aiocuda::driver {

completion::Level Room::level(completion::LineId line) {
  const StreamIndex stream = completion::stream_of(line);
  if (line & completion::memory_bit) {
    const std::int32_t device = streams_.at(stream).device;
    Guests::Account guests = devices_.guests().account(device);
    return {memory_.account(device).used_bytes + guests.allocated_bytes, std::move(guests.freed_bytes)};
  }
  dataflow::Progress progress = timeline_.progress(stream);
  return {progress.count, std::move(progress.counter)};
}

void Room::keep_moving(completion::LineId line) {
  if (line & completion::memory_bit) return lines_.note(line, level(line));
  const StreamIndex stream = line;
  const auto count = lines_.next_watch(stream, level(stream));
  if (!count) return;
  const Waits::Armed armed = waits_.arm({{stream, *count}}, {});
  if (armed.parts.empty()) return lines_.has_room(stream);  // destroyed: all of it has passed
  lines_.set_watch(stream, waits_.watch(armed, [this, stream] { lines_.has_room(stream); }));
}

}  // namespace aiocuda::driver
