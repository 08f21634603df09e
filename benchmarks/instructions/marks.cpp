// Where callgrind begins to count, and where it writes down what it has counted.
#include <valgrind/callgrind.h>

extern "C" void start() { CALLGRIND_START_INSTRUMENTATION; }
extern "C" void zero() { CALLGRIND_ZERO_STATS; }
extern "C" void dump(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }
