// What CUDA arrays can be, their memory, and their part of the API.
#include "texture/array.hpp"

#include <algorithm>
#include <bit>
#include <mutex>

#include "capture/capture.hpp"
#include "checking/checking.hpp"
#include "injection.hpp"
#include "memory/physical_memory.hpp"

namespace aiocuda::emulator::texture {
namespace {

// The greatest extents of each kind, as on devices of compute capability 9.0.
constexpr std::size_t most_1d = 131072, most_2d_width = 131072, most_2d_height = 65536, most_3d = 16384;
constexpr std::size_t most_layered = 32768, most_layers = 2048, most_cube = 32768;

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR& description) {
  const Format format{description.Format, description.NumChannels};
  if (const CUresult error = format.check()) return error;
  const auto& [width, height, depth, unused_format, channels, flags] = description;
  constexpr unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                             CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;
  constexpr unsigned unsupported = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_DEPTH_TEXTURE;
  if ((flags & ~(known | unsupported)) != 0 || width == 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & unsupported) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  const bool is_layered = (flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    const bool are_faces = is_layered ? depth != 0 && depth % 6 == 0 : depth == 6;
    return width == height && are_faces && width <= most_cube ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (is_layered) {
    const bool fits = width <= most_layered && height <= most_layered && depth <= most_layers;
    return depth != 0 && fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (depth != 0) {
    const bool fits = width <= most_3d && height <= most_3d && depth <= most_3d;
    return height != 0 && fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  const bool fits = height == 0 ? width <= most_1d : width <= most_2d_width && height <= most_2d_height;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

ArrayTable& arrays() {
  static auto& table = *new ArrayTable;
  return table;
}

MipmappedArrayTable& mipmapped_arrays() {
  static auto& table = *new MipmappedArrayTable;
  return table;
}

CUresult Array::make(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& description, std::shared_ptr<Array>& made) {
  if (const CUresult error = check(description)) return error;
  if (injection::strikes(injection::Kind::alloc, context.device())) return CUDA_ERROR_OUT_OF_MEMORY;
  const Format format{description.Format, description.NumChannels};
  const std::size_t bytes = description.Width * format.texel_bytes() * std::max<std::size_t>(description.Height, 1) *
                            std::max<std::size_t>(description.Depth, 1);
  auto allocation = std::make_shared<memory::Allocation>();
  allocation->memory = &memory::device_memory(context.device());
  {
    const std::lock_guard lock(allocation->memory->mutex());
    const auto block = allocation->memory->allocate(bytes);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->block = *block;
  }
  allocation->kind = memory::Allocation::Kind::array;
  allocation->address = allocation->block.address;
  allocation->bytes = bytes;
  allocation->context = context.handle();
  allocation->device = context.device();
  if (auto* const checker = checking::checker())
    checker->allocated(allocation->address, bytes, allocation->block.bytes);
  memory::list(allocation);
  made = std::shared_ptr<Array>(new Array(context.shared_from_this(), description, std::move(allocation)));
  return CUDA_SUCCESS;
}

Array::~Array() {
  if (!memory::unlist(*allocation_)) return;  // its context has ended, and its memory with it
  if (auto* const checker = checking::checker())
    checker->freed_by_host(allocation_->address, allocation_->bytes, "cuArrayDestroy");
  memory::release(*allocation_);
}

}  // namespace aiocuda::emulator::texture

using namespace aiocuda::emulator;
using namespace aiocuda::emulator::texture;

namespace {

CUDA_ARRAY3D_DESCRIPTOR with_depth(const CUDA_ARRAY_DESCRIPTOR& description) {
  return {description.Width, description.Height, 0, description.Format, description.NumChannels, 0};
}

CUresult create(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& description, Context& context) {
  if (const CUresult error = capture::check_unsafe_call()) return error;
  std::shared_ptr<Array> array;
  if (const CUresult error = Array::make(context, description, array)) return error;
  *handle = arrays().add(std::move(array));
  return CUDA_SUCCESS;
}

// The extents of the next level.
std::size_t half(std::size_t extent) { return extent == 0 ? 0 : std::max<std::size_t>(extent / 2, 1); }

// A level's handle is in the table of arrays, too, but the mipmapped array destroys it.
bool is_level(const std::shared_ptr<Array>& array) {
  const auto owners = mipmapped_arrays().find_if([&](const MipmappedArray& each) {
    return std::find(each.levels.begin(), each.levels.end(), array) != each.levels.end();
  });
  return !owners.empty();
}

}  // namespace

CUresult cuArrayCreate(CUarray* handle, const CUDA_ARRAY_DESCRIPTOR* description) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr || description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, with_depth(*description), entry.context());
}

CUresult cuArray3DCreate(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr || description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, *description, entry.context());
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR* description, CUarray handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto array = arrays().find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& all = array->description();
  *description = {all.Width, all.Height, all.Format, all.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* description, CUarray handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto array = arrays().find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *description = array->description();
  return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto array = arrays().find(handle);
  if (!array || is_level(array)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = array->context().synchronise()) return error;
  return arrays().take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray handle, CUdevice device) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = check_device(device)) return error;
  const auto array = arrays().find(handle);
  // Only arrays whose memory is mapped later have any, and the emulator has none of those.
  return array && requirements != nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* handle, const CUDA_ARRAY3D_DESCRIPTOR* description, unsigned levels) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  if (handle == nullptr || description == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool has_depth = (description->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0;
  const std::size_t greatest = std::max({description->Width, description->Height, has_depth ? description->Depth : 0});
  // More levels than there can be are as many as there can be.
  const auto most = static_cast<unsigned>(std::bit_width(greatest));
  auto made = std::make_shared<MipmappedArray>();
  CUDA_ARRAY3D_DESCRIPTOR level = *description;
  for (unsigned each = 0; each < std::max(1U, std::min(levels, most)); ++each) {
    std::shared_ptr<Array> array;
    if (const CUresult error = Array::make(entry.context(), level, array)) return error;
    made->levels.push_back(std::move(array));
    level.Width = half(level.Width);
    level.Height = half(level.Height);
    if (has_depth) level.Depth = half(level.Depth);
  }
  for (const auto& each : made->levels) arrays().add(each);
  *handle = mipmapped_arrays().add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* level, CUmipmappedArray handle, unsigned number) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  const auto array = mipmapped_arrays().find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (level == nullptr || number >= array->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *level = ArrayTable::handle_of(*array->levels[number]);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  const auto array = mipmapped_arrays().find(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult error = array->context().synchronise()) return error;
  if (!mipmapped_arrays().take(handle)) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& level : array->levels) arrays().take(ArrayTable::handle_of(*level));
  return CUDA_SUCCESS;
}
