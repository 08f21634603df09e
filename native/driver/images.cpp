// Loaded images: who holds them, and when they are unloaded.
#include <algorithm>
#include <iterator>
#include <mutex>

#include "captures.hpp"
#include "engine.hpp"

namespace aiocuda::driver {

dataflow::BufferRef Engine::own_image(CUlibrary library, std::int32_t ordinal) {
  // One byte stands for the whole image: its hazards say which launches still run its code.
  auto image = std::make_unique<dataflow::Buffer>(1, ordinal, dataflow::MemoryKind::image);
  image->address = reinterpret_cast<std::uint64_t>(library);
  image->owner = this;
  ++image_count_;
  return dataflow::BufferRef(std::move(image));
}

// The driver may wait for a device that was idle a moment ago. So nobody else submits meanwhile: who wants to waits for
// the right to submit, without the GIL. Where somebody has that right now, the images wait for the next time.
void Engine::unload_idle_images() {
  const std::unique_lock alone(submitting, std::try_to_lock);
  if (!alone) return;
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due;
  std::map<std::int32_t, bool> idle;
  auto is_due = [&](const dataflow::Buffer& image) {
    if (!has_passed(image)) return false;
    const auto [known, is_new] = idle.try_emplace(image.device, true);
    try {
      if (is_new) known->second = is_idle(image.device);
    } catch (const Refusal&) {  // a broken context runs nothing any more
    }
    return known->second;
  };
  for (auto& image : std::exchange(dropped_images_, {})) (is_due(*image) ? due : left).push_back(std::move(image));
  dropped_images_ = std::move(left);
  unload(std::move(due));
}

void Engine::unload_images(std::int32_t ordinal) {
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due;
  for (auto& image : std::exchange(dropped_images_, {}))
    (image->device == ordinal && has_passed(*image) ? due : left).push_back(std::move(image));
  dropped_images_ = std::move(left);
  unload(std::move(due));
}

// The driver refuses only where the context is broken, and the image with it. It would refuse in the middle of a stream
// capture, too, and end that capture: the relaxed mode keeps the call out of it.
void Engine::unload(std::vector<std::unique_ptr<dataflow::Buffer>> images) {
  if (images.empty() || is_over()) return;
  image_count_ -= images.size();
  const RelaxedCaptures relaxed(table);
  ContextScope scope(*this);
  for (const auto& image : images) {
    scope.bind(image->device);
    without_gil([&] { return table.cuLibraryUnload(reinterpret_cast<CUlibrary>(image->address)); });
  }
}

}  // namespace aiocuda::driver
