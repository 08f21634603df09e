// The functions of nvrtc.h. A program handle is valid from nvrtcCreateProgram to nvrtcDestroyProgram; any
// other is answered with NVRTC_ERROR_INVALID_PROGRAM. No exception leaves this file.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

#include "nvrtc_types.hpp"
#include "options.hpp"
#include "program.hpp"

namespace aiocuda::emulator::nvrtc {

const char* result_name(int result) {
  switch (result) {
    case success:
      return "NVRTC_SUCCESS";
    case error_out_of_memory:
      return "NVRTC_ERROR_OUT_OF_MEMORY";
    case error_program_creation_failure:
      return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case error_invalid_input:
      return "NVRTC_ERROR_INVALID_INPUT";
    case error_invalid_program:
      return "NVRTC_ERROR_INVALID_PROGRAM";
    case error_invalid_option:
      return "NVRTC_ERROR_INVALID_OPTION";
    case error_compilation:
      return "NVRTC_ERROR_COMPILATION";
    case error_builtin_operation_failure:
      return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    case error_no_name_expressions_after_compilation:
      return "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
    case error_no_lowered_names_before_compilation:
      return "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
    case error_name_expression_not_valid:
      return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    case error_internal_error:
      return "NVRTC_ERROR_INTERNAL_ERROR";
    case error_time_file_write_failed:
      return "NVRTC_ERROR_TIME_FILE_WRITE_FAILED";
    case error_no_pch_create_attempted:
      return "NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED";
    case error_pch_create_heap_exhausted:
      return "NVRTC_ERROR_PCH_CREATE_HEAP_EXHAUSTED";
    case error_pch_create:
      return "NVRTC_ERROR_PCH_CREATE";
    case error_cancelled:
      return "NVRTC_ERROR_CANCELLED";
    case error_time_trace_file_write_failed:
      return "NVRTC_ERROR_TIME_TRACE_FILE_WRITE_FAILED";
    case error_busy:
      return "NVRTC_ERROR_BUSY";
    default:
      return "NVRTC_ERROR unknown";
  }
}

namespace {

// The version of CUDA whose NVRTC this answers for. The emulated driver's is newer, as a driver's may be.
constexpr int version_major = 13;
constexpr int version_minor = 0;
constexpr std::size_t default_pch_heap_bytes = 256u << 20;

struct Registry {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<Program>> programs;
  std::size_t pch_heap_bytes = default_pch_heap_bytes;
};

// Never destroyed: threads may still compile while the process ends.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

// The program stays alive while it is used, even if another thread destroys it meanwhile.
std::shared_ptr<Program> find(void* handle) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  const auto entry = all.programs.find(handle);
  return entry == all.programs.end() ? nullptr : entry->second;
}

template <class F>
Result with_program(void* handle, F f) {
  try {
    const std::shared_ptr<Program> program = find(handle);
    return program == nullptr ? error_invalid_program : f(*program);
  } catch (const std::bad_alloc&) {
    return error_out_of_memory;
  } catch (...) {
    return error_internal_error;
  }
}

// What a program was compiled to, in one of its forms.
template <class Form>
Result output_size(void* handle, std::size_t* size, Form form) {
  if (size == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    if (!program.is_compiled()) return error_invalid_program;
    *size = form(program).size();
    return success;
  });
}

template <class Form>
Result output(void* handle, char* to, Form form) {
  if (to == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    if (!program.is_compiled()) return error_invalid_program;
    const std::string content = form(program);
    std::memcpy(to, content.data(), content.size());
    return success;
  });
}

// A program for link time has that form alone, and others do not have it: its size is 0, that of text 1.
std::string as_binary(const Program& program) { return program.is_for_link_time() ? std::string{} : program.image(); }
std::string as_text(const Program& program) {
  return program.is_for_link_time() ? std::string(1, '\0') : program.ptx();
}
std::string as_link_time(const Program& program) {
  return program.is_for_link_time() ? program.image() : std::string{};
}

// Kinds of output that only a GPU's tools can use.
Result no_output_size(void* handle, std::size_t* size) {
  if (size == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program&) {
    *size = 0;
    return error_invalid_program;
  });
}

Result no_output(void* handle, const char* to) {
  if (to == nullptr) return error_invalid_input;
  return with_program(handle, [](Program&) { return error_invalid_program; });
}

}  // namespace
}  // namespace aiocuda::emulator::nvrtc

using namespace aiocuda::emulator::nvrtc;

#define NVRTC_API __attribute__((visibility("default")))

extern "C" {

NVRTC_API const char* nvrtcGetErrorString(int result) { return result_name(result); }

NVRTC_API int nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return error_invalid_input;
  *major = version_major;
  *minor = version_minor;
  return success;
}

NVRTC_API int nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) return error_invalid_input;
  *count = static_cast<int>(supported_architectures().size());
  return success;
}

NVRTC_API int nvrtcGetSupportedArchs(int* architectures) {
  if (architectures == nullptr) return error_invalid_input;
  for (const int architecture : supported_architectures()) *architectures++ = architecture;
  return success;
}

NVRTC_API int nvrtcCreateProgram(void** handle, const char* source, const char* name, int header_count,
                                 const char* const* headers, const char* const* include_names) {
  if (handle == nullptr || source == nullptr || header_count < 0 ||
      (header_count > 0 && (headers == nullptr || include_names == nullptr))) {
    return error_invalid_input;
  }
  try {
    std::vector<Header> copies;
    for (int i = 0; i < header_count; ++i) {
      if (headers[i] == nullptr || include_names[i] == nullptr) return error_invalid_input;
      copies.push_back({include_names[i], headers[i]});
    }
    auto program = std::make_shared<Program>(source, name == nullptr || *name == '\0' ? "default_program" : name,
                                             std::move(copies));
    Registry& all = registry();
    const std::scoped_lock lock(all.mutex);
    *handle = program.get();
    all.programs.emplace(program.get(), std::move(program));
    return success;
  } catch (const std::bad_alloc&) {
    return error_out_of_memory;
  } catch (...) {
    return error_program_creation_failure;
  }
}

NVRTC_API int nvrtcDestroyProgram(void** handle) {
  if (handle == nullptr) return error_invalid_program;
  Registry& all = registry();
  std::shared_ptr<Program> last;  // destroyed outside the lock
  const std::scoped_lock lock(all.mutex);
  const auto entry = all.programs.find(*handle);
  if (entry == all.programs.end()) return error_invalid_program;
  last = std::move(entry->second);
  all.programs.erase(entry);
  *handle = nullptr;
  return success;
}

NVRTC_API int nvrtcCompileProgram(void* handle, int option_count, const char* const* options) {
  if (option_count < 0 || (option_count > 0 && options == nullptr)) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    std::vector<std::string> copies;
    for (int i = 0; i < option_count; ++i) {
      if (options[i] == nullptr) return error_invalid_input;
      copies.emplace_back(options[i]);
    }
    return program.compile(copies);
  });
}

// The same image as binary and as text: the emulated driver loads it in either form.
NVRTC_API int nvrtcGetPTXSize(void* handle, std::size_t* size) { return output_size(handle, size, as_text); }
NVRTC_API int nvrtcGetPTX(void* handle, char* to) { return output(handle, to, as_text); }
NVRTC_API int nvrtcGetCUBINSize(void* handle, std::size_t* size) { return output_size(handle, size, as_binary); }
NVRTC_API int nvrtcGetCUBIN(void* handle, char* to) { return output(handle, to, as_binary); }
NVRTC_API int nvrtcGetLTOIRSize(void* handle, std::size_t* size) { return output_size(handle, size, as_link_time); }
NVRTC_API int nvrtcGetLTOIR(void* handle, char* to) { return output(handle, to, as_link_time); }
NVRTC_API int nvrtcGetOptiXIRSize(void* handle, std::size_t* size) { return no_output_size(handle, size); }
NVRTC_API int nvrtcGetOptiXIR(void* handle, char* to) { return no_output(handle, to); }

NVRTC_API int nvrtcGetProgramLogSize(void* handle, std::size_t* size) {
  if (size == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    *size = program.log().size() + 1;
    return success;
  });
}

NVRTC_API int nvrtcGetProgramLog(void* handle, char* to) {
  if (to == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    std::memcpy(to, program.log().c_str(), program.log().size() + 1);
    return success;
  });
}

NVRTC_API int nvrtcAddNameExpression(void* handle, const char* expression) {
  if (expression == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) { return program.add_name_expression(expression); });
}

NVRTC_API int nvrtcGetLoweredName(void* handle, const char* expression, const char** lowered) {
  if (expression == nullptr || lowered == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    Result result = success;
    *lowered = program.lowered_name(expression, result);
    return result;
  });
}

// Precompiled headers: the options are accepted and none is ever made.
NVRTC_API int nvrtcGetPCHHeapSize(std::size_t* size) {
  if (size == nullptr) return error_invalid_input;
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  *size = all.pch_heap_bytes;
  return success;
}

NVRTC_API int nvrtcSetPCHHeapSize(std::size_t size) {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  all.pch_heap_bytes = size;
  return success;
}

NVRTC_API int nvrtcGetPCHCreateStatus(void* handle) {
  return with_program(handle, [](Program&) { return error_no_pch_create_attempted; });
}

NVRTC_API int nvrtcGetPCHHeapSizeRequired(void* handle, std::size_t* size) {
  if (size == nullptr) return error_invalid_input;
  return with_program(handle, [](Program&) { return error_no_pch_create_attempted; });
}

NVRTC_API int nvrtcSetFlowCallback(void* handle, int (*callback)(void*, void*), void* payload) {
  if (callback == nullptr) return error_invalid_input;
  return with_program(handle, [&](Program& program) {
    program.set_flow_callback(callback, payload);
    return success;
  });
}
}
