# Finds the directory of cuda.h: AIOCUDA_CUDA_INCLUDE_DIR if it is set, else the wheel
# nvidia-cuda-runtime where Python's interpreter sees it, else an installed CUDA toolkit.
# Only headers are needed; nothing of CUDA is linked.
if(NOT AIOCUDA_CUDA_INCLUDE_DIR)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c [[
import importlib.util
import pathlib

spec = importlib.util.find_spec("nvidia")
for place in (spec.submodule_search_locations or ()) if spec else ():
    for folder in sorted(pathlib.Path(place).glob("cu1[3-9]/include")):
        if (folder / "cuda.h").is_file():
            print(folder.as_posix())
            raise SystemExit
]]
    OUTPUT_STRIP_TRAILING_WHITESPACE
    OUTPUT_VARIABLE cuda_headers_of_wheel
    COMMAND_ERROR_IS_FATAL ANY)
endif()

find_path(AIOCUDA_CUDA_INCLUDE_DIR cuda.h
  HINTS "${cuda_headers_of_wheel}" ENV CUDA_PATH ENV CUDA_HOME
  PATHS /usr/local/cuda /opt/cuda
  PATH_SUFFIXES include
  DOC "The directory that holds cuda.h, of CUDA 13")

if(AIOCUDA_CUDA_INCLUDE_DIR)
  if(NOT EXISTS "${AIOCUDA_CUDA_INCLUDE_DIR}/cuda.h")
    message(FATAL_ERROR "AIOCUDA_CUDA_INCLUDE_DIR is ${AIOCUDA_CUDA_INCLUDE_DIR}, which holds no cuda.h.")
  endif()
  file(STRINGS "${AIOCUDA_CUDA_INCLUDE_DIR}/cuda.h" cuda_version_line
    REGEX "^#define[ \t]+CUDA_VERSION[ \t]+[0-9]+" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" cuda_version_number "${cuda_version_line}")
  math(EXPR cuda_version_major "${cuda_version_number} / 1000")
  math(EXPR cuda_version_minor "${cuda_version_number} % 1000 / 10")
  set(CudaHeaders_VERSION "${cuda_version_major}.${cuda_version_minor}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders
  REQUIRED_VARS AIOCUDA_CUDA_INCLUDE_DIR
  VERSION_VAR CudaHeaders_VERSION
  REASON_FAILURE_MESSAGE "cuda.h was not found: `pip install 'nvidia-cuda-runtime>=13,<14'`, or set AIOCUDA_CUDA_INCLUDE_DIR to a directory that holds it.")
if(CudaHeaders_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "${AIOCUDA_CUDA_INCLUDE_DIR}/cuda.h is of CUDA ${CudaHeaders_VERSION}; 13 is needed.")
endif()

if(NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE "${AIOCUDA_CUDA_INCLUDE_DIR}")
endif()
