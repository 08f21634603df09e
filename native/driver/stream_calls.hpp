// What makes handles for streams, and the timeline's calls about them; for the parts of `Streams`.
#pragma once
#include <utility>

#include "streams.hpp"

namespace aiocuda::driver {

// A handle that goes back to the driver unless it is kept.
template <class Handle>
class Fresh {
 public:
  Fresh(const DriverNow& now, Handle handle) : now_(now), handle_(handle) {}
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
  ~Fresh() {
    if (handle_) now_.destroy(handle_);
  }
  Handle keep() { return std::exchange(handle_, nullptr); }

 private:
  const DriverNow& now_;
  Handle handle_;
};

// The timeline's calls. A refused call ends its decision, and the timeline does not remember it then.
class Streams::Waits {
 public:
  explicit Waits(Streams& streams) : streams_(streams) {}
  void mark(StreamIndex stream, std::uint32_t slot) { streams_.put_mark(stream, slot); }
  void wait(StreamIndex stream, StreamIndex other, std::uint32_t slot) { streams_.wait_for_mark(stream, other, slot); }

 private:
  Streams& streams_;
};

}  // namespace aiocuda::driver
