# aiocuda_options: what every C++ target of this project compiles with (the language, warnings, the
# sanitizers asked for). Third-party sources, nanobind's among them, do not link it. aiocuda_language is the same without the
# sanitizers, for programs that switch stacks themselves.
add_library(aiocuda_language INTERFACE)
add_library(aiocuda_options INTERFACE)
target_link_libraries(aiocuda_options INTERFACE aiocuda_language)
target_compile_features(aiocuda_language INTERFACE cxx_std_20)
target_compile_options(aiocuda_language INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -fvisibility=hidden)

# g++ warns of a member whose type only its own file knows, because a unit's files look like headers to it.
if(CMAKE_UNITY_BUILD)
  target_compile_options(aiocuda_language INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# A variable of a thread is found by a call of a few instructions, where the compiler can: the default calls the loader.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mtls-dialect=gnu2 AIOCUDA_HAS_TLS_DESCRIPTORS)
if(AIOCUDA_HAS_TLS_DESCRIPTORS)
  target_compile_options(aiocuda_language INTERFACE -mtls-dialect=gnu2)
endif()

# Functions of other libraries are called through the table of their addresses, and not through a stub for each.
check_cxx_compiler_flag(-fno-plt AIOCUDA_HAS_NO_PLT)
if(AIOCUDA_HAS_NO_PLT)
  target_compile_options(aiocuda_language INTERFACE -fno-plt)
endif()

# Not errors: instrumented by a sanitizer, libstdc++'s own <regex> looks uninitialised to g++; and g++ 12
# sees an overlap in `"text" + std::string` that is not there (GCC bug 105651).
set(aiocuda_warnings_as_errors -Werror
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>"
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${AIOCUDA_SANITIZE}>>:-Wno-maybe-uninitialized>")
if(AIOCUDA_WARNINGS_AS_ERRORS)
  target_compile_options(aiocuda_language INTERFACE ${aiocuda_warnings_as_errors})
endif()

if(AIOCUDA_SANITIZE STREQUAL "address")
  set(aiocuda_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(AIOCUDA_SANITIZE STREQUAL "thread")
  set(aiocuda_sanitizers -fsanitize=thread)
elseif(NOT AIOCUDA_SANITIZE STREQUAL "")
  message(FATAL_ERROR "AIOCUDA_SANITIZE is ${AIOCUDA_SANITIZE}; it must be empty, address or thread")
endif()
if(aiocuda_sanitizers)
  target_compile_options(aiocuda_options INTERFACE ${aiocuda_sanitizers} -fno-omit-frame-pointer -g1)
  target_link_options(aiocuda_options INTERFACE ${aiocuda_sanitizers})
endif()
