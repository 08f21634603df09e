// The objects, by their numbers, and the functions of the driver API that make them.
#include "texture/texture.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "checking/checking.hpp"
#include "checking/recorder.hpp"
#include "fault.hpp"
#include "stream.hpp"
#include "texture/array.hpp"
#include "texture/view.hpp"

namespace aiocuda::emulator::texture {
namespace {

constexpr std::size_t texture_alignment = 256, pitch_alignment = 32;

struct Object {
  const Context* context = nullptr;
  bool is_surface = false;
  bool is_layered = false, is_cube = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  CUDA_RESOURCE_VIEW_DESC view{};              // zeros where there is none
  Sampler sampler;                             // of a surface, only its format and its levels are used
  std::vector<std::shared_ptr<Array>> arrays;  // whose memory it reads
};

// Kernels look an object up without a lock, so one that is destroyed lives until its context has nothing to do.
class Objects {
 public:
  static Objects& all() {
    static auto& objects = *new Objects;
    return objects;
  }

  // 0 where there is no room for another one.
  std::uint64_t add(std::unique_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    forget_unused();
    if (places_ == nullptr) return 0;
    std::size_t place = next_;
    if (!free_.empty()) {
      place = free_.back();
      free_.pop_back();
    } else if (next_ == most) {
      return 0;
    } else {
      ++next_;
    }
    places_[place].store(object.get(), std::memory_order_release);
    owned_.emplace(place, std::move(object));
    return place + 1;
  }

  const Object* find(std::uint64_t number) const noexcept {
    if (number == 0 || number > most || places_ == nullptr) return nullptr;
    return places_[number - 1].load(std::memory_order_acquire);
  }

  // As find, for the host, which may copy what it finds.
  template <typename Use>
  bool use(std::uint64_t number, bool is_surface, Use&& use) {
    const std::lock_guard lock(mutex_);
    const Object* const object = find(number);
    if (object == nullptr || object->is_surface != is_surface) return false;
    use(*object);
    return true;
  }

  bool remove(std::uint64_t number, bool is_surface) {
    const std::lock_guard lock(mutex_);
    const Object* const object = find(number);
    if (object == nullptr || object->is_surface != is_surface) return false;
    retire(number - 1);
    forget_unused();
    return true;
  }

  void remove_all_of(const Context& context) {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> ended;
    for (const auto& [place, object] : owned_) {
      if (object->context == &context) ended.push_back(place);
    }
    for (const std::size_t place : ended) retire(place);
    std::erase_if(retired_, [&](const auto& each) {
      if (each.second->context != &context) return false;
      free_.push_back(each.first);
      return true;
    });
  }

 private:
  static constexpr std::size_t most = std::size_t{1} << 20;

  Objects() {
    void* const memory = ::mmap(nullptr, most * sizeof(std::atomic<const Object*>), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) places_ = static_cast<std::atomic<const Object*>*>(memory);
  }

  void retire(std::size_t place) {
    places_[place].store(nullptr, std::memory_order_release);
    const auto found = owned_.find(place);
    retired_.emplace_back(place, std::move(found->second));
    owned_.erase(found);
  }

  void forget_unused() {
    std::erase_if(retired_, [&](const auto& each) {
      const auto streams = each.second->context->streams();
      if (!std::all_of(streams.begin(), streams.end(), [](const auto& stream) { return stream->idle(); })) return false;
      free_.push_back(each.first);
      return true;
    });
  }

  std::mutex mutex_;
  std::atomic<const Object*>* places_ = nullptr;
  std::size_t next_ = 0;
  std::vector<std::size_t> free_;
  std::map<std::size_t, std::unique_ptr<Object>> owned_;
  std::vector<std::pair<std::size_t, std::unique_ptr<Object>>> retired_;
};

void tell_read(const void* address, std::size_t bytes) { checking::record_access(address, bytes, abi::access_read); }

Level level_of(const Array& array) {
  const auto extent = [](std::size_t given) { return static_cast<int>(std::max<std::size_t>(given, 1)); };
  const CUDA_ARRAY3D_DESCRIPTOR& description = array.description();
  return {reinterpret_cast<const std::byte*>(array.address()),
          array.row_bytes(),
          array.row_bytes() * array.rows(),
          extent(description.Width),
          extent(description.Height),
          extent(description.Depth)};
}

// Fills in what the object is of.
CUresult take_resource(const CUDA_RESOURCE_DESC& resource, Object& object) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  object.resource = resource;
  Sampler& sampler = object.sampler;
  Level level;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      auto array = arrays().find(resource.res.array.hArray);
      if (!array) return CUDA_ERROR_INVALID_VALUE;
      object.arrays.push_back(std::move(array));
      break;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto array = mipmapped_arrays().find(resource.res.mipmap.hMipmappedArray);
      if (!array) return CUDA_ERROR_INVALID_VALUE;
      object.arrays = array->levels;
      break;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      sampler.format = {linear.format, linear.numChannels};
      if (const CUresult error = sampler.format.check()) return error;
      const std::size_t texels = linear.sizeInBytes / sampler.format.texel_bytes();
      constexpr std::size_t most_texels = std::size_t{1} << 28;
      const bool is_valid = linear.devPtr != 0 && linear.devPtr % texture_alignment == 0 && texels <= most_texels;
      if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
      level.texels = reinterpret_cast<const std::byte*>(linear.devPtr);
      level.width = static_cast<int>(texels);
      sampler.is_linear_memory = true;
      sampler.levels.push_back(level);
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      sampler.format = {pitched.format, pitched.numChannels};
      if (const CUresult error = sampler.format.check()) return error;
      constexpr std::size_t most_width = 131072, most_height = 65000;
      const bool is_valid = pitched.devPtr != 0 && pitched.devPtr % texture_alignment == 0 && pitched.width != 0 &&
                            pitched.height != 0 && pitched.width <= most_width && pitched.height <= most_height &&
                            pitched.pitchInBytes % pitch_alignment == 0 &&
                            pitched.pitchInBytes >= pitched.width * sampler.format.texel_bytes();
      if (!is_valid) return CUDA_ERROR_INVALID_VALUE;
      level.texels = reinterpret_cast<const std::byte*>(pitched.devPtr);
      level.row_bytes = pitched.pitchInBytes;
      level.width = static_cast<int>(pitched.width);
      level.height = static_cast<int>(pitched.height);
      sampler.levels.push_back(level);
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const Array& base = *object.arrays.front();
  sampler.format = base.format();
  object.is_layered = base.is_layered();
  object.is_cube = base.is_cube();
  for (const auto& each : object.arrays) sampler.levels.push_back(level_of(*each));
  return CUDA_SUCCESS;
}

bool is_mode(CUaddress_mode mode) {
  return mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_CLAMP || mode == CU_TR_ADDRESS_MODE_MIRROR ||
         mode == CU_TR_ADDRESS_MODE_BORDER;
}

bool is_filter(CUfilter_mode mode) { return mode == CU_TR_FILTER_MODE_POINT || mode == CU_TR_FILTER_MODE_LINEAR; }

// Fills in how the object is read.
CUresult take_description(const CUDA_TEXTURE_DESC& description, Object& object) {
  constexpr unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                             CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
  const bool are_modes = is_filter(description.filterMode) && is_filter(description.mipmapFilterMode) &&
                         std::all_of(std::begin(description.addressMode), std::end(description.addressMode), is_mode);
  if (!are_modes || (description.flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((description.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  object.description = description;
  Sampler& sampler = object.sampler;
  const bool is_wide = sampler.format.element_bytes() == 4 && !sampler.format.is_float();
  sampler.reads_floats = sampler.format.is_float() || (!is_wide && (description.flags & CU_TRSF_READ_AS_INTEGER) == 0);
  sampler.is_normalised = (description.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  sampler.is_srgb = (description.flags & CU_TRSF_SRGB) != 0 && sampler.format.format == CU_AD_FORMAT_UNSIGNED_INT8 &&
                    sampler.reads_floats;
  sampler.filters_linearly = description.filterMode == CU_TR_FILTER_MODE_LINEAR && !sampler.is_linear_memory;
  sampler.filters_levels_linearly = description.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  if (sampler.filters_linearly && is_wide) return CUDA_ERROR_INVALID_VALUE;
  const bool is_mipmapped = object.resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  std::copy(std::begin(description.addressMode), std::end(description.addressMode), sampler.address_modes.begin());
  if (object.is_cube) sampler.address_modes.fill(CU_TR_ADDRESS_MODE_CLAMP);
  std::copy(std::begin(description.borderColor), std::end(description.borderColor), sampler.border.begin());
  if (is_mipmapped) {
    sampler.level_bias = description.mipmapLevelBias;
    sampler.least_level = description.minMipmapLevelClamp;
    sampler.greatest_level = description.maxMipmapLevelClamp;
  }
  return CUDA_SUCCESS;
}

[[noreturn]] void fail_access(const char* message) { fail_kernel(CUDA_ERROR_ILLEGAL_ADDRESS, message); }

// The element that an access means; null where it lies outside and counts for nothing.
std::byte* element_at(const Object& object, const abi::SurfaceAccess& access) {
  const Level& level = object.sampler.levels.front();
  const auto texel_bytes = static_cast<int>(object.sampler.format.texel_bytes());
  const auto bytes = static_cast<int>(access.bytes);
  int x = access.x_bytes;
  int y = access.shape == abi::shape_1d ? 0 : access.y;
  int z = access.shape == abi::shape_3d || access.shape == abi::shape_cube ? access.z : 0;
  if (access.is_layered != 0) z = access.layer;
  if (x % bytes != 0) fail_kernel(CUDA_ERROR_MISALIGNED_ADDRESS, "a surface's x, which is in bytes, is misaligned");
  const int last_x = level.width * texel_bytes - bytes;
  const bool is_inside = x >= 0 && x <= last_x && y >= 0 && y < level.height && z >= 0 && z < level.depth;
  if (!is_inside) {
    switch (access.boundary) {
      case abi::boundary_zero:
        return nullptr;
      case abi::boundary_clamp:
        x = std::clamp(x, 0, last_x);
        y = std::clamp(y, 0, level.height - 1);
        z = std::clamp(z, 0, level.depth - 1);
        break;
      default:
        fail_access("an access to a surface outside of its array (cudaBoundaryModeTrap)");
    }
  }
  auto* const texels = const_cast<std::byte*>(level.texels);  // a surface's array is written, too
  return texels + static_cast<std::size_t>(z) * level.slice_bytes + static_cast<std::size_t>(y) * level.row_bytes +
         static_cast<std::size_t>(x);
}

}  // namespace

void fetch_texture(abi::TextureFetch* fetch) {
  const Object* const object = Objects::all().find(fetch->texture);
  if (object == nullptr || object->is_surface) fail_access("a fetch from a texture object that there is not");
  if (fetch->shape == abi::shape_linear && !object->sampler.is_linear_memory) {
    fail_access("tex1Dfetch of a texture that is not of linear memory");
  }
  sample(object->sampler, *fetch, checking::checker() != nullptr ? &tell_read : nullptr);
}

void access_surface(const abi::SurfaceAccess* access) {
  const Object* const object = Objects::all().find(access->surface);
  if (object == nullptr || !object->is_surface) fail_access("an access to a surface object that there is not");
  std::byte* const element = element_at(*object, *access);
  if (element == nullptr) {
    if (access->is_write == 0) std::memset(access->data, 0, access->bytes);
    return;
  }
  if (checking::checker() != nullptr)
    checking::record_access(element, access->bytes, access->is_write != 0 ? abi::access_write : abi::access_read);
  if (access->is_write != 0) {
    std::memcpy(element, access->data, access->bytes);
  } else {
    std::memcpy(access->data, element, access->bytes);
  }
}

void release_objects(const Context& context) { Objects::all().remove_all_of(context); }

}  // namespace aiocuda::emulator::texture

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::texture;

CUresult cuTexObjectCreate(CUtexObject* number, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC* description, const CUDA_RESOURCE_VIEW_DESC* view) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (number == nullptr || resource == nullptr || description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto object = std::make_unique<Object>();
  object->context = &entry.context();
  if (const CUresult error = take_resource(*resource, *object)) return error;
  if (view != nullptr && !object->arrays.empty()) {  // that of linear memory is ignored, as by an H100's driver
    if (const CUresult error = apply_view(*view, *object->arrays.front(), object->sampler)) return error;
    object->view = *view;
  }
  if (const CUresult error = take_description(*description, *object)) return error;
  *number = Objects::all().add(std::move(object));
  return *number != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuTexObjectDestroy(CUtexObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  return Objects::all().remove(number, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_found = Objects::all().use(number, false, [&](const Object& each) { *resource = each.resource; });
  return is_found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* description, CUtexObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_found = Objects::all().use(number, false, [&](const Object& each) { *description = each.description; });
  return is_found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (view == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_found = Objects::all().use(number, false, [&](const Object& each) { *view = each.view; });
  return is_found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuSurfObjectCreate(CUsurfObject* number, const CUDA_RESOURCE_DESC* resource) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (number == nullptr || resource == nullptr || resource->resType != CU_RESOURCE_TYPE_ARRAY)
    return CUDA_ERROR_INVALID_VALUE;
  auto object = std::make_unique<Object>();
  object->context = &entry.context();
  object->is_surface = true;
  if (const CUresult error = take_resource(*resource, *object)) return error;
  *number = Objects::all().add(std::move(object));
  return *number != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuSurfObjectDestroy(CUsurfObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  return Objects::all().remove(number, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool is_found = Objects::all().use(number, true, [&](const Object& each) { *resource = each.resource; });
  return is_found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
