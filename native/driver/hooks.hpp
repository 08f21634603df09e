// Functions and classes of Python's that the native half calls.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda::driver {

struct Hooks {
  nanobind::object refused;       // (code, function, op | None, asked_bytes, device) -> exception
  nanobind::object lost;          // (code, op | None, device) -> exception
  nanobind::object lift;          // what a callback returned -> an operation, or the value
  nanobind::object open;          // (ordinal): opens a device at its first use
  nanobind::object opening;       // (ordinal) -> HostWork: has it opened by another thread; None: it is open
  nanobind::object opening_file;  // (FileCopy, ordinal) -> HostWork: has it opened by another thread
  nanobind::object making;        // (Graph) -> HostWork: has it made by another thread; None: it is made
  nanobind::object not_done;  // (HostWork, op or words, ordinal): raises what one of these threads raised, if it did
  nanobind::object stream;    // (stream's id, ordinal) -> Stream
  nanobind::object policy_streams;  // (policy, ordinal, priority, op that needs them) -> the ids of its streams there,
                                    // which it keeps
  nanobind::object keeper_of_stream;  // (handle, ordinal) -> what keeps another library's stream; None: nobody knows
  nanobind::object named;       // (exception, op) -> the exception, which names an operation where a device was lost
  nanobind::object over_limit;  // (asked_bytes, device, limit_bytes) -> exception
  nanobind::object over;        // () -> the exception for what needs the driver when the engine is over
  nanobind::object get_ahead;   // (AheadMemory) -> HostWork: has it got by another thread
  nanobind::object held_up;     // (op, seconds): a step of its execution took its thread for longer than is to be told
  double held_up_s = 0.0;
  nanobind::object device_array, host_array;  // the classes of results
};

}  // namespace aiocuda::driver
