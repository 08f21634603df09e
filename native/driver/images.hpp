// Loaded images: who holds them, and when they are unloaded.
//
// Always true: an image is unloaded once, when nobody holds it and the device has passed all that used it. NVIDIA's
// driver may wait for the device before it unloads, so an image also waits until the device has nothing else to do,
// unless somebody asks. Guarded by the GIL.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../dataflow/buffer.hpp"
#include "../dataflow/timeline.hpp"
#include "streams.hpp"

namespace aiocuda::driver {

class Images final : public dataflow::MemoryOwner {
 public:
  Images(Devices& devices, Streams& streams, dataflow::Timeline& timeline, Surroundings& around)
      : devices_(devices), streams_(streams), timeline_(timeline), around_(around), now_(devices.now()) {}

  // Takes over an image that was loaded on a device.
  dataflow::BufferRef own(CUlibrary library, std::int32_t device);
  // A launch that will be the stream's next submission uses the image.
  void note_use(dataflow::Buffer& image, StreamIndex stream) {
    image.hazards.commit({0, image.size_bytes}, false, {stream, timeline_.submitted(stream) + 1});
  }

  void take_back(std::unique_ptr<dataflow::Buffer> image) noexcept override;
  // Unload images that nobody holds and whose users have passed: where the device is idle; also while it does other
  // work. The driver may wait for that, and other threads go on meanwhile.
  void unload_idle();
  void unload(std::int32_t device);

  std::size_t dropped_count() const { return dropped_.size(); }
  std::size_t count() const { return count_; }  // that are loaded

 private:
  template <class IsDue>
  void unload_where(IsDue&& is_due);
  bool is_loaded_everywhere() const;

  Devices& devices_;
  Streams& streams_;
  dataflow::Timeline& timeline_;
  Surroundings& around_;
  const DriverNow& now_;
  std::vector<std::unique_ptr<dataflow::Buffer>> dropped_;  // that nobody holds, and that are loaded still
  std::size_t count_ = 0;
};

}  // namespace aiocuda::driver
