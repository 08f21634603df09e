# The graphs of the driver; included by the driver's CMakeLists.txt.
set(EMULATED_GRAPH_SOURCES
    graph/conditional.cpp
    graph/copy_parameters.cpp
    graph/dot.cpp
    graph/executable.cpp
    graph/executable_api.cpp
    graph/generic_nodes.cpp
    graph/graph.cpp
    graph/graph_api.cpp
    graph/graph_memory.cpp
    graph/kernel_parameters.cpp
    graph/node_api.cpp
    graph/other_parameters.cpp
    graph/plan.cpp
    graph/replay.cpp
    graph/update.cpp
    graph/user_object.cpp)
