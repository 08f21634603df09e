// `const __grid_constant__` parameters of kernels. Such a parameter is the launch's own argument, one for the whole
// grid. So the kernel's parameter gets another name, and its own name becomes a reference to the argument.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"
#include "host_code.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

bool has_grid_constants(const std::vector<Token>& tokens, Range parameters);

struct GridConstants {
  std::string references;  // what the kernel's body begins with
  std::string checks;      // of their types, which only the compiler knows
};

// Renames the copies in a kernel that has a body, up to the position of a pack.
GridConstants make_grid_constants(const std::vector<Token>& tokens, const Declaration& kernel,
                                  std::optional<std::size_t> pack, Edits& edits);

// The position of the first parameter that is a pack of grid constants, in the declaration of a template.
std::optional<std::size_t> pack_of_grid_constants(const std::vector<Token>& tokens, const Declaration& kernel);

// A pack has no names that could become references in the body. So its parameters are references themselves, in every
// declaration of the kernel, and kernel.hpp binds them to the launch's arguments. `first` is the pack's position.
// Answers the tokens before which a "&" is to stand.
std::vector<std::size_t> references_of_pack(const std::vector<Token>& tokens, const Declaration& kernel,
                                            std::size_t first);
// The check that a pack's types are const, for the body of the template.
std::string check_of_pack(const std::vector<Token>& tokens, const Declaration& kernel, std::size_t first);

// Where NVRTC takes no `__grid_constant__`.
std::vector<HostCode> find_misplaced_grid_constants(const std::vector<Token>& tokens,
                                                    const std::vector<Declaration>& declarations);

}  // namespace aiocuda::emulator::nvrtc
