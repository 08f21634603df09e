// May an operation use an array so? Asked when it is built, and again before it is submitted.
//
// Always true: the error tells the array's story: where it was closed, moved, shared or partitioned.
#pragma once
#include "array.hpp"
#include "raise.hpp"

namespace aiocuda::dataflow {

[[noreturn, gnu::cold]] inline void raise_ended(const Array& array, const std::string& where) {
  const std::string ended = array.ended.empty() ? "was closed" : array.ended;
  raise(ended.starts_with("was closed") ? error_types.closed : error_types.ownership,
        where + ": the array of " + dtypes[array.dtype].name + describe_shape(array.shape) + " " + ended +
            ", before this use of it");
}

[[noreturn, gnu::cold]] inline void raise_claimed(const Claim& claim, const std::string& where,
                                                  const std::string& what) {
  const char* part = " (or a part of the same memory) ";
  switch (claim.kind) {
    case ClaimKind::shared:
      raise(error_types.ownership,
            where + ": " + what + part + "was shared at " + claim.place +
                ", and is read-only while a shared handle is left; close the others and unwrap() the last");
    case ClaimKind::partitioned:
      raise(error_types.ownership, where + ": " + what + part + "was partitioned at " + claim.place +
                                       "; use the partition, or unpartition() it first");
    case ClaimKind::moved:
      raise(error_types.ownership,
            where + ": " + what + part + "was moved at " + claim.place + "; use what it was moved to");
    case ClaimKind::read_only:
      break;
  }
  raise(error_types.ownership,
        where + ": " + what + " is read-only: " + claim.place + "; dup() it for a copy that can be written");
}

[[noreturn, gnu::cold]] inline void raise_enclosed(const Array& array, const std::string& where) {
  const Enclosure& enclosure = *array.buffer->enclosure;
  raise(error_types.capture,
        where + ": " + describe(array) +
            (enclosure.is_open
                 ? " belongs to the graph that is being made at " + enclosure.place +
                       "; record() what uses it into the same graph, or use the graph's result once it has run"
                 : " is inside the graph made at " + enclosure.place +
                       ", which uses its memory for other arrays as well; make it a part of the graph's result"));
}

// Nobody has a say in what the array is used for: it is there, inside no graph, and was never shared or partitioned.
inline bool is_free_to_use(const Array& array) {
  return array.buffer && !array.buffer->enclosure && !array.buffer->claims;
}

template <class Where>
void check_usable(const Array& array, bool writes, Where&& where) {
  if (!array.buffer) raise_ended(array, where());
  if (array.buffer->enclosure && !array.buffer->enclosure->admits()) raise_enclosed(array, where());
  if (!array.buffer->claims) return;
  if (const Claim* claim = array.buffer->claims->against_access(array.region(), writes, array.group.get()))
    raise_claimed(*claim, where(), describe(array));
}

}  // namespace aiocuda::dataflow
