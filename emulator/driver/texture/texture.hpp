// Texture and surface objects: what they are of, and how they are read. Always: an object's number is not used again
// while a kernel that was launched with it may run.
#pragma once
#include <memory>

#include "abi/texture_abi.hpp"
#include "context.hpp"
#include "texture/sampling.hpp"

namespace aiocuda::emulator::texture {

// The functions behind Services::fetch_texture and Services::access_surface.
void fetch_texture(abi::TextureFetch* fetch);
void access_surface(const abi::SurfaceAccess* access);

// For the end of a context: its objects go with it.
void release_objects(const Context& context);

}  // namespace aiocuda::emulator::texture
