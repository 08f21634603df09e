// Calls that tests hold or refuse (AIOCUDA_EMULATOR_HOLD): a driver may take long for them, and a program is to go on
// meanwhile.
#pragma once
#include <cuda.h>

namespace aiocuda::emulator {

// Where the directory of the setting has a file named `function.device`, reads it to its end, once. A named pipe holds
// the caller until somebody has written to it and closed it. The answer is the number that was read, success if nothing
// was.
CUresult held(const char* function, int device);

}  // namespace aiocuda::emulator
