// The CUDA C++ of the server: what a transformer does with the rows of a step, one kernel per idea. Products of
// matrices are not here. A row is one token of one text. All rows of a step go through the same kernels, whether they
// are of prompts or of answers, and no row reads another one's place but through the cache of its own text.
//
// A step is told what to do by three arrays of int:
//   rows    for each row: the text's slot, the position, and the token (-1: the last one that was chosen for the slot);
//           a slot of -1 says that the row is not used
//   picks   for each token to choose: the row behind which it comes, the slot, a seed, and the bits of a float, the
//           temperature (0: the likeliest token); a row of -1 says that the pick is not used
//   tables  for each slot: the pages that hold its keys and values, PAGE positions each
// Matrices are row-major. Blocks are whole warps.
#include <cuda_bf16.h>

constexpr int WARP = 32, PAGE = 16, ROW = 3, PICK = 4;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOWEST = -3.402823466e38f;

__device__ float warp_sum(float x) {
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(ALL_LANES, x, lanes);
    return x;
}

// Every thread gets the sum over its block. For one use in a kernel: nothing protects `part` from a second.
__device__ float block_sum(float x) {
    __shared__ float part[WARP];
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) part[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < blockDim.x / WARP; ++warp) sum += part[warp];
    return sum;
}

// Nanoseconds, by the device's clock.
__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// A block for each row takes its token's row of the embedding. The first one writes to `clock` when the step began, and
// that no block of the last kernel has ended.
__global__ void embed(const __nv_bfloat16* embedding, const int* rows, const int* last, __nv_bfloat16* x, int width,
                      unsigned long long* clock) {
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        clock[0] = now();
        clock[1] = 0;
    }
    const int* const row = rows + ROW * blockIdx.x;
    const int slot = row[0], token = slot < 0 ? 0 : row[2] < 0 ? last[slot] : row[2];
    for (int i = threadIdx.x; i < width; i += blockDim.x) {
        x[(size_t)blockIdx.x * width + i] =
            slot < 0 ? __float2bfloat16(0) : embedding[(size_t)token * width + i];
    }
}

// Root mean square normalisation of a row, by a block.
__device__ void normalise(const __nv_bfloat16* x, const __nv_bfloat16* gain, __nv_bfloat16* normed, int width) {
    float mine = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) mine += __bfloat162float(x[i]) * __bfloat162float(x[i]);
    const float scale = rsqrtf(block_sum(mine) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        normed[i] = __float2bfloat16(__bfloat162float(x[i]) * scale * __bfloat162float(gain[i]));
}

__global__ void rms_norm(const __nv_bfloat16* x, const __nv_bfloat16* gain, __nv_bfloat16* normed, int width) {
    normalise(x + (size_t)blockIdx.x * width, gain, normed + (size_t)blockIdx.x * width, width);
}

// The same, of the rows behind which a token is chosen: no others need logits.
__global__ void rms_norm_picked(const __nv_bfloat16* x, const __nv_bfloat16* gain, const int* picks,
                                __nv_bfloat16* normed, int width) {
    const int row = max(picks[PICK * blockIdx.x], 0);  // one that is not used is computed, and not chosen from
    normalise(x + (size_t)row * width, gain, normed + (size_t)blockIdx.x * width, width);
}

// The place of a row's position in a cache of keys or values.
__device__ size_t place_of(const int* row, const int* tables, int pages_each, int kv_heads, int head_width) {
    const int page = tables[row[0] * pages_each + row[1] / PAGE];
    return ((size_t)page * PAGE + row[1] % PAGE) * kv_heads * head_width;
}

// A row of `projected` has a query for each head, then a key and then a value for each head of the cache. Rotary
// positions turn each pair of a query and of a key by its angle at the row's position (J. Su et al., "RoFormer", 2021);
// a row of `turns` holds a cosine and a sine for each pair. Keys and values go to their page. A block for each head of a
// row, a thread for each pair.
__global__ void rotate_and_keep(__nv_bfloat16* projected, const float* turns, const int* rows, const int* tables,
                                __nv_bfloat16* keys, __nv_bfloat16* values, int heads, int kv_heads, int head_width,
                                int pages_each) {
    const int* const row = rows + ROW * blockIdx.y;
    const int head = blockIdx.x, i = 2 * threadIdx.x;
    if (row[0] < 0 || i >= head_width) return;
    __nv_bfloat16* const pair = projected + ((size_t)blockIdx.y * (heads + 2 * kv_heads) + head) * head_width + i;
    const float a = __bfloat162float(pair[0]), b = __bfloat162float(pair[1]);
    const float* const turn = turns + (size_t)row[1] * head_width + i;
    const __nv_bfloat16 turned[2] = {__float2bfloat16(a * turn[0] - b * turn[1]),
                                     __float2bfloat16(a * turn[1] + b * turn[0])};
    if (head < heads) {
        pair[0] = turned[0];
        pair[1] = turned[1];
        return;
    }
    const bool is_key = head < heads + kv_heads;
    const int kept_head = head - heads - (is_key ? 0 : kv_heads);
    __nv_bfloat16* const kept = (is_key ? keys : values) + place_of(row, tables, pages_each, kv_heads, head_width) +
                                (size_t)kept_head * head_width + i;
    kept[0] = is_key ? turned[0] : pair[0];
    kept[1] = is_key ? turned[1] : pair[1];
}

// A head of a row takes this from all positions of its text so far, by a block with `READERS` warps that share the
// positions out. A warp looks at a position once: when it meets a higher score, it scales down what it has (M. Milakov,
// N. Gimelshein, "Online normalizer calculation for softmax", 2018). In the end the warps are added up in the same way.
// Several heads share one of the cache.
template <int HEAD_WIDTH, int READERS>
__global__ void __launch_bounds__(READERS * WARP)
attend(const __nv_bfloat16* projected, const int* rows, const int* tables, const __nv_bfloat16* keys,
       const __nv_bfloat16* values, __nv_bfloat16* mixed, int heads, int kv_heads, int pages_each) {
    constexpr int EACH = (HEAD_WIDTH + WARP - 1) / WARP;  // of a head, in one lane
    __shared__ float peaks[READERS], sums[READERS], mixes[READERS][HEAD_WIDTH];
    const int lane = threadIdx.x % WARP, reader = threadIdx.x / WARP, head = blockIdx.x;
    const int* const row = rows + ROW * blockIdx.y;
    __nv_bfloat16* const out = mixed + ((size_t)blockIdx.y * heads + head) * HEAD_WIDTH;
    if (row[0] < 0) {
        for (int i = threadIdx.x; i < HEAD_WIDTH; i += blockDim.x) out[i] = __float2bfloat16(0);
        return;
    }
    const __nv_bfloat16* const query = projected + ((size_t)blockIdx.y * (heads + 2 * kv_heads) + head) * HEAD_WIDTH;
    float peak = LOWEST, sum = 0, asked[EACH], mix[EACH];
    for (int i = 0; i < EACH; ++i) {
        const int column = lane + i * WARP;
        asked[i] = column < HEAD_WIDTH ? __bfloat162float(query[column]) * rsqrtf(HEAD_WIDTH) : 0;
        mix[i] = 0;
    }
    const int kept_head = head / (heads / kv_heads) * HEAD_WIDTH;
    for (int at = reader; at <= row[1]; at += READERS) {
        const int there[2] = {row[0], at};
        const size_t kept = place_of(there, tables, pages_each, kv_heads, HEAD_WIDTH) + kept_head;
        float value[EACH], product = 0;
        for (int i = 0; i < EACH; ++i) {
            const int column = lane + i * WARP;
            value[i] = column < HEAD_WIDTH ? __bfloat162float(values[kept + column]) : 0;
            product += column < HEAD_WIDTH ? asked[i] * __bfloat162float(keys[kept + column]) : 0;
        }
        const float score = warp_sum(product), higher = fmaxf(peak, score);
        const float kept_share = expf(peak - higher), weight = expf(score - higher);
        for (int i = 0; i < EACH; ++i) mix[i] = mix[i] * kept_share + weight * value[i];
        sum = sum * kept_share + weight;
        peak = higher;
    }
    if (lane == 0) {
        peaks[reader] = peak;
        sums[reader] = sum;
    }
    for (int i = 0; i < EACH; ++i) {
        if (lane + i * WARP < HEAD_WIDTH) mixes[reader][lane + i * WARP] = mix[i];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < HEAD_WIDTH; column += blockDim.x) {
        float highest = LOWEST, total = 0, value = 0;
        for (int i = 0; i < READERS; ++i) highest = fmaxf(highest, peaks[i]);
        for (int i = 0; i < READERS; ++i) {
            const float weight = expf(peaks[i] - highest);
            total += weight * sums[i];
            value += weight * mixes[i][column];
        }
        out[column] = __float2bfloat16(value / total);
    }
}

// The gate's SiLU times what it lets through; a row of `both` has the gate, then the other.
__global__ void swiglu(const __nv_bfloat16* both, __nv_bfloat16* let_through, int hidden) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= hidden) return;
    const size_t row = blockIdx.y;
    const float gate = __bfloat162float(both[2 * row * hidden + i]);
    const float up = __bfloat162float(both[(2 * row + 1) * hidden + i]);
    let_through[row * hidden + i] = __float2bfloat16(gate / (1 + expf(-gate)) * up);
}

// C. Wellons' "lowbias32", of "Prospecting for Hash Functions" (2018).
__device__ unsigned mixed_up(unsigned x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// A number between 0 and 1 that depends on these three alone, and not on the company of the text.
__device__ float chance(unsigned seed, unsigned position, unsigned token) {
    return ((mixed_up(mixed_up(mixed_up(seed) ^ position) ^ token) >> 8) + 0.5f) / 16777216;
}

struct Choice {
    float score;
    int token;
};

__device__ Choice better(Choice a, Choice b) {
    return b.score > a.score || (b.score == a.score && b.token < a.token) ? b : a;
}

__device__ Choice best_of_warp(Choice mine) {
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
        const Choice other = {__shfl_xor_sync(ALL_LANES, mine.score, lanes),
                              __shfl_xor_sync(ALL_LANES, mine.token, lanes)};
        mine = better(mine, other);
    }
    return mine;
}

// Called once by each block: the last one writes when the step began and ended.
__device__ void end_block(int* chosen, unsigned long long* clock) {
    if (atomicAdd(&clock[1], 1ull) != gridDim.x - 1) return;
    const unsigned long long times[2] = {clock[0], now()};
    for (int i = 0; i < 4; ++i) chosen[gridDim.x + i] = (int)(unsigned)(times[i / 2] >> (i % 2 * 32));
}

// A block for each pick takes the token with the highest score, of equals the first. With a temperature, noise is added
// so that each token is taken as often as its logit says (the Gumbel-max trick). `chosen` is for the host: a token for
// each pick, then when the step began and ended, in nanoseconds. The block that ends last knows that.
__global__ void choose(const __nv_bfloat16* logits, const int* picks, const int* rows, int* last, int* chosen,
                       int vocabulary, unsigned long long* clock) {
    __shared__ Choice best[WARP];
    const int* const pick = picks + PICK * blockIdx.x;
    if (pick[0] < 0) {
        if (threadIdx.x == 0) end_block(chosen, clock);
        return;
    }
    const unsigned position = rows[ROW * pick[0] + 1];
    const float temperature = __int_as_float(pick[3]);
    Choice mine = {LOWEST, vocabulary - 1};
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        float score = __bfloat162float(logits[(size_t)blockIdx.x * vocabulary + i]);
        if (temperature > 0) score = score / temperature - logf(-logf(chance(pick[2], position, i)));
        mine = better(mine, {score, i});
    }
    mine = best_of_warp(mine);
    if (threadIdx.x % WARP == 0) best[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    mine = best_of_warp(best[threadIdx.x < blockDim.x / WARP ? threadIdx.x : 0]);
    if (threadIdx.x != 0) return;
    last[pick[1]] = chosen[blockIdx.x] = mine.token;
    end_block(chosen, clock);
}
