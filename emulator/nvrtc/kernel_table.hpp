// The table of a module's kernels, as text behind the program: what was found in it, and what name expressions name.
// The driver and the image (image.cpp) read it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "names.hpp"

namespace aiocuda::emulator::nvrtc {

struct KernelDeclaration {
  std::string name;  // unqualified
  bool is_template;
  bool is_overloaded;
  bool runs_as_fibers;
  bool is_split;  // at its barriers
  bool functions_use_place;
  bool has_grid_constants;
  int guard;  // the position of the parameter n in "if (i < n)", or -1
  // Of __launch_bounds__ and __cluster_dims__; of a template's, the functions that answer them.
  std::string bounds;
  std::string cluster;
};

// As aiocuda_device::KernelFlags has them.
unsigned flags_of(const KernelDeclaration& kernel);

class KernelTable {
 public:
  // The next kernel's position among those that were added.
  std::size_t next() const { return kernels_.size(); }
  void add(KernelDeclaration kernel) { kernels_.push_back(std::move(kernel)); }
  // The kernel itself, by the type that describes it; a template has no place of its own.
  void list(std::string type, std::string name) { entries_.push_back({std::move(type), std::move(name), ""}); }
  // The kernel that an expression names: an instance of one that was added, mostly. `waiting`: names by which a thread
  // waits.
  void list_expression(const std::string& expression, const Names& waiting, bool functions_use_place);

  // `unit` tells this program's tables from those of others that it is linked with; `constants` is the text of the
  // table of its constant variables.
  std::string text(const std::string& unit, const std::string& constants) const;

 private:
  struct Entry {
    std::string type;
    std::string name;
    std::string alias;  // of what an expression names; empty for a kernel found in the text
  };
  std::vector<KernelDeclaration> kernels_;
  std::vector<Entry> entries_;
  std::size_t expressions_ = 0;
};

}  // namespace aiocuda::emulator::nvrtc
