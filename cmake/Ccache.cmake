# ccache compiles, where there is one that works and nobody named a launcher. -DCMAKE_CXX_COMPILER_LAUNCHER= asks for none.
#
# Always true: what ccache gives is what the compiler would have made. Two settings are for that:
# - CCACHE_DEPEND: ccache knows a file by what it and all its headers say. By default it also knows a file by its
#   preprocessed text. A precompiled header's has no macros, so an edited macro would bring the old header back.
# - CCACHE_SLOPPINESS: without these two, ccache keeps nothing that has to do with precompiled headers. The first is about
#   that text. The second is about the time of day, which no file here has in it.
#
# CCACHE_BASEDIR is not set, so another clone finds nothing: units and precompiled headers name files by whole paths.
if(DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Somebody else's ccache may lack those settings. It keeps nothing then, which costs more than the headers do.
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED CMAKE_DISABLE_PRECOMPILE_HEADERS)
    set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  endif()
  return()
endif()
find_program(AIOCUDA_CCACHE ccache DOC "Compiles, where no launcher is named")
mark_as_advanced(AIOCUDA_CCACHE)
if(NOT AIOCUDA_CCACHE)
  return()
endif()
set(launcher "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros "${AIOCUDA_CCACHE}")
# It ends with an error where it cannot write, as in a home that is read-only.
separate_arguments(first_argument UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1}")
execute_process(
  COMMAND ${launcher} "${CMAKE_CXX_COMPILER}" ${first_argument} -x c++ -c /dev/null
    -o "${CMAKE_BINARY_DIR}/CMakeFiles/ccache_works.o"
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  message(STATUS "ccache: not used, for ${AIOCUDA_CCACHE} does not work: ${said}")
  return()
endif()
message(STATUS "ccache: ${AIOCUDA_CCACHE}")
set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
# clang writes the time into a precompiled header, so that no two are the same.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
