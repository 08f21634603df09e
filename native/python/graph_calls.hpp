// Launches of graphs and calls of compiled functions that run no Python of aiocuda's.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
void bind_graph_calls(nanobind::module_& module);
}
