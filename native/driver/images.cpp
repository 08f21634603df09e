// Loaded images: see images.hpp.
#include "images.hpp"

#include <map>

#include "captures.hpp"

namespace aiocuda::driver {

dataflow::BufferRef Images::own(CUlibrary library, std::int32_t ordinal) {
  // One byte stands for the whole image: its hazards say which launches still run its code.
  auto image = std::make_unique<dataflow::Buffer>(1, ordinal, dataflow::MemoryKind::image);
  image->address = reinterpret_cast<std::uint64_t>(library);
  image->owner = this;
  ++count_;
  return dataflow::BufferRef(std::move(image));
}

void Images::take_back(std::unique_ptr<dataflow::Buffer> image) noexcept {
  if (around_.is_over()) return;
  dropped_.push_back(std::move(image));
  around_.note_return();
}

void Images::unload_idle() {
  if (dropped_.empty() || around_.is_over() || !now_.has_all()) return;
  const bool every_device = is_loaded_everywhere();
  std::map<std::int32_t, bool> idle;
  unload_where([&](const dataflow::Buffer& image) {
    const auto [known, is_new] = idle.try_emplace(image.device, true);
    try {
      if (is_new) known->second = every_device ? streams_.is_idle() : streams_.is_idle(image.device);
    } catch (const Refusal&) {  // a broken context runs nothing any more
    }
    return known->second;
  });
}

void Images::unload(std::int32_t ordinal) {
  unload_where([ordinal](const dataflow::Buffer& image) { return image.device == ordinal; });
}

// With CUDA_MODULE_LOADING=EAGER the driver loads a library on every device, and waits for every device to unload it.
bool Images::is_loaded_everywhere() const {
  CUmoduleLoadingMode mode = CU_MODULE_LAZY_LOADING;
  return devices_.table().cuModuleGetLoadingMode(&mode) == CUDA_SUCCESS && mode == CU_MODULE_EAGER_LOADING;
}

// The driver refuses only where the context is broken, and the image with it. It would refuse in the middle of a stream
// capture, too, and end that capture: the relaxed mode keeps the call out of it.
template <class IsDue>
void Images::unload_where(IsDue&& is_due) {
  if (dropped_.empty() || around_.is_over() || !now_.has_all()) return;
  std::vector<std::unique_ptr<dataflow::Buffer>> left, due;
  for (auto& image : std::exchange(dropped_, {}))
    (streams_.has_ended(*image) && is_due(*image) ? due : left).push_back(std::move(image));
  dropped_ = std::move(left);
  if (due.empty()) return;
  count_ -= due.size();
  const RelaxedCaptures relaxed(devices_.table());
  ContextScope scope(devices_);
  for (const auto& image : due) {
    scope.bind(image->device);
    around_.call_slowly([&] { return now_.unload(reinterpret_cast<CUlibrary>(image->address)); });
  }
}

}  // namespace aiocuda::driver
