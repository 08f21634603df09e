# Arrays, textures and surfaces; included by the driver's CMakeLists.txt.
set(EMULATED_TEXTURE_SOURCES
    texture/array.cpp
    texture/format.cpp
    texture/sampling.cpp
    texture/texture.cpp
    texture/view.cpp)
