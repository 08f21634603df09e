// The Python face of graphs: recording into a plan, the graph, its launches.
#pragma once
#include <nanobind/nanobind.h>

namespace aiocuda {
void bind_graphs(nanobind::module_& module);
}
