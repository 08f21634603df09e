// The operations in which lanes of a warp exchange values, as the device headers ask for them and the
// block runtime performs them: each lane gives (mask, value, argument), and when every lane of the mask
// has come, all get their results at once.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum aiocuda_warp_operation {
  aiocuda_warp_sync,       // no value
  aiocuda_warp_shuffle,    // argument: the lane to read from
  aiocuda_warp_ballot,     // value: the predicate
  aiocuda_warp_match_any,  // lanes with an equal value
  aiocuda_warp_match_all,  // the mask if all values are equal, else 0
  aiocuda_warp_add,
  aiocuda_warp_min_signed,
  aiocuda_warp_max_signed,
  aiocuda_warp_min_unsigned,
  aiocuda_warp_max_unsigned,
  aiocuda_warp_and,
  aiocuda_warp_or,
  aiocuda_warp_xor,
  aiocuda_warp_converge,  // the lanes now at this line: resolved when no lane of the block can go on
  aiocuda_warp_step       // the same by place, the place that comes first in the program first
};

enum aiocuda_barrier_vote { aiocuda_vote_count, aiocuda_vote_and, aiocuda_vote_or };

#ifdef __cplusplus
}
#endif
