# The headers a CUDA C++ program can #include. The program is preprocessed against these alone; each says,
# by a pragma, what to include when it is compiled, or nothing where CUDA C++ has its content built in.
# Sets AIOCUDA_VISIBLE_HEADERS to the list written under `directory`.

# CUDA's own, whose content is built in.
set(built_in_headers
    builtin_types.h channel_descriptor.h cuda_device_runtime_api.h cuda_runtime.h cuda_runtime_api.h
    device_atomic_functions.h device_functions.h device_launch_parameters.h device_types.h driver_functions.h
    driver_types.h host_config.h host_defines.h math_functions.h nvrtc_builtins.h sm_30_intrinsics.h
    sm_60_atomic_functions.h vector_functions.h vector_functions.hpp vector_types.h crt/device_functions.h crt/math_functions.h
    crt/host_defines.h)

# The host's, which NVRTC does not have. They lie in a directory that is searched where the settings ask for it.
set(built_in_host_headers
    assert.h cuda.h float.h inttypes.h limits.h math.h stdarg.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h)
set(standard_headers
    algorithm array atomic bit cassert cctype cfloat chrono cinttypes climits cmath compare complex concepts cstdarg cstddef
    cstdint cstdio cstdlib cstring ctime functional initializer_list iterator limits memory new numbers numeric optional
    ratio span string_view tuple type_traits typeindex utility variant version)

set(cuda_std_headers
    array atomic bit cassert cfloat chrono climits cmath complex concepts cstddef cstdint cstdlib cstring ctime functional
    initializer_list iterator limits numeric optional ratio span tuple type_traits utility variant version)

set(own_headers
    "cuda_fp16.h=cuda_fp16.hpp" "cuda_fp16.hpp=cuda_fp16.hpp" "cuda_bf16.h=cuda_bf16.hpp" "cuda_bf16.hpp=cuda_bf16.hpp"
    "cooperative_groups.h=cooperative_groups.hpp" "cooperative_groups/reduce.h=cooperative_groups.hpp"
    "cooperative_groups/scan.h=cooperative_groups.hpp" "cooperative_groups/memcpy_async.h=cooperative_groups.hpp"
    "cooperative_groups/details/helpers.h=cooperative_groups.hpp" "cuComplex.h=cuda_complex.hpp"
    "cuda_fp8.h=cuda_fp8.hpp" "mma.h=mma.hpp" "libcudacxx/cuda/barrier=cuda_barrier.hpp"
    "libcudacxx/cuda/pipeline=cuda_pipeline_class.hpp" "libcudacxx/cuda/atomic=cuda_atomic.hpp"
    "cuda_pipeline.h=cuda_pipeline.hpp" "cuda_pipeline_primitives.h=cuda_pipeline.hpp")

# What comes first: macros that other headers and programs ask for with #ifdef, or a header of the host's.
set(macros_of_cuda.h "#define CUDA_VERSION 13000\n")
set(macros_of_cuda_fp16.h "#define __CUDA_FP16_TYPES_EXIST__\n#define __CUDA_FP16_H__\n")
set("macros_of_libcudacxx/cuda/atomic" "#pragma aiocuda_include <atomic>\n")
set(macros_of_cuda_fp8.h "#define __CUDA_FP8_TYPES_EXIST__\n")
set(macros_of_cuda_bf16.h "#define __CUDA_BF16_TYPES_EXIST__\n#define __CUDA_BF16_H__\n")

function(aiocuda_write_visible_headers directory)
  file(REMOVE_RECURSE "${directory}")  # of an older list
  foreach(header IN LISTS built_in_headers)
    file(CONFIGURE OUTPUT "${directory}/${header}" CONTENT "#pragma once\n" @ONLY)
  endforeach()
  file(CONFIGURE OUTPUT "${directory}/math_constants.h"
       CONTENT "#pragma once\n#pragma aiocuda_include \"aiocuda_cuda_cpp/math_constants.hpp\"\n" @ONLY)
  foreach(header IN LISTS built_in_host_headers)
    file(CONFIGURE OUTPUT "${directory}/host/${header}" CONTENT "#pragma once\n${macros_of_${header}}" @ONLY)
  endforeach()
  foreach(header IN LISTS standard_headers)
    file(CONFIGURE OUTPUT "${directory}/host/${header}"
         CONTENT "#pragma once\n#pragma aiocuda_include <${header}>\n" @ONLY)
  endforeach()
  foreach(header IN LISTS cuda_std_headers)
    file(CONFIGURE OUTPUT "${directory}/libcudacxx/cuda/std/${header}"
         CONTENT "#pragma once\n#pragma aiocuda_include <${header}>\n#pragma aiocuda_include \"aiocuda_cuda_cpp/cuda_std.hpp\"\n"
         @ONLY)
  endforeach()
  foreach(pair IN LISTS own_headers)
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 header)
    list(GET pair 1 own)
    file(CONFIGURE OUTPUT "${directory}/${header}"
         CONTENT "#pragma once\n${macros_of_${header}}#pragma aiocuda_include \"aiocuda_cuda_cpp/${own}\"\n" @ONLY)
  endforeach()
  # The NDEBUG of the program decides about its assertions.
  foreach(header assert.h cassert)
    file(CONFIGURE OUTPUT "${directory}/host/${header}"
         CONTENT "#ifdef NDEBUG\n#pragma aiocuda_include \"aiocuda_cuda_cpp/no_assert.hpp\"\n#endif\n" @ONLY)
  endforeach()
endfunction()
