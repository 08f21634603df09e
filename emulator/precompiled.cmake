# precompile_standard_headers(target [headers...]): the target's files find what most of them include, and perhaps
# `headers`, parsed once. -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON leaves it out: each file then shows whether it includes
# all that it uses, and a cache of compiled files (ccache) finds more of them.
function(precompile_standard_headers target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <atomic> <chrono> <condition_variable> <cstddef> <cstdint> <cstring> <deque> <functional> <map>
    <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant>
    <vector> ${ARGN})
endfunction()
