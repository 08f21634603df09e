// NVRTC's result codes, with the values of its public header. Handles are opaque pointers.
#pragma once

namespace aiocuda::emulator::nvrtc {

enum Result : int {
  success = 0,
  error_out_of_memory = 1,
  error_program_creation_failure = 2,
  error_invalid_input = 3,
  error_invalid_program = 4,
  error_invalid_option = 5,
  error_compilation = 6,
  error_builtin_operation_failure = 7,
  error_no_name_expressions_after_compilation = 8,
  error_no_lowered_names_before_compilation = 9,
  error_name_expression_not_valid = 10,
  error_internal_error = 11,
  error_time_file_write_failed = 12,
  error_no_pch_create_attempted = 13,
  error_pch_create_heap_exhausted = 14,
  error_pch_create = 15,
  error_cancelled = 16,
  error_time_trace_file_write_failed = 17,
  error_busy = 18
};

const char* result_name(int result);

}  // namespace aiocuda::emulator::nvrtc
