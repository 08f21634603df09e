// Marks at which callgrind begins to count, and at which it writes its counts down.
#include <valgrind/callgrind.h>

extern "C" void start() { CALLGRIND_START_INSTRUMENTATION; }
extern "C" void stop() { CALLGRIND_STOP_INSTRUMENTATION; }
extern "C" void zero() { CALLGRIND_ZERO_STATS; }
extern "C" void dump(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
