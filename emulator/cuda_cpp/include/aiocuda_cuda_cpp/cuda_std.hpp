// cuda/std/...: the host's standard library under libcu++'s name.
#pragma once

#include "language.hpp"

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
