// The CUDA C++ of the example: what a decoder does with one token, one kernel per idea.
// The kernels read the token's place from *position, so the launches of a step are the same at every position. Matrices
// are row-major. Const pointers are read, the others are read and written. Blocks are whole warps.

constexpr int WARP = 32;
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

// The block's row of a matrix times a vector. The loads of an unrolled loop are under way together.
__device__ float row_times(const float* matrix, const float* x, int columns) {
    const float* const row = matrix + (size_t)blockIdx.x * columns;
    float sum = 0;
    #pragma unroll 8
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] * x[i];
    return block_sum(sum);
}

__global__ void embed(const float* embedding, const int* tokens, const int* position, float* x, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width) x[i] = embedding[(size_t)tokens[*position] * width + i];
}

// Root mean square normalisation, by one block.
__global__ void rms_norm(const float* x, const float* gain, float* normed, int width) {
    float mine = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) mine += x[i] * x[i];
    const float scale = rsqrtf(block_sum(mine) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += blockDim.x) normed[i] = x[i] * scale * gain[i];
}

// y = matrix x, or y += matrix x; a block for each row.
template <bool Add>
__global__ void matvec(const float* matrix, const float* x, float* y, int columns) {
    const float product = row_times(matrix, x, columns);
    if (threadIdx.x == 0) y[blockIdx.x] = Add ? y[blockIdx.x] + product : product;
}

// The same, to the row of a cache where the token stands.
__global__ void matvec_to_cache(const float* matrix, const float* x, const int* position, float* cache, int columns) {
    const float product = row_times(matrix, x, columns);
    if (threadIdx.x == 0) cache[(size_t)*position * gridDim.x + blockIdx.x] = product;
}

// Rotary positions: each pair of a vector (or of a cache's row where the token stands) is turned by its angle there.
// A row of `turns` holds a cosine and a sine for each pair of a head.
template <bool Cached>
__global__ void rotate(const float* turns, const int* position, float* x, int width, int head_width) {
    const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= width) return;
    const float* const turn = turns + (size_t)*position * head_width + i % head_width;
    float* const pair = x + (Cached ? (size_t)*position * width : 0) + i;
    const float a = pair[0], b = pair[1];
    pair[0] = a * turn[0] - b * turn[1];
    pair[1] = a * turn[1] + b * turn[0];
}

// A query takes this from all positions so far: a block for each head, with `READERS` warps that share the positions
// out. A warp looks at a position once: when it meets a higher score, it scales down what it has (M. Milakov, N.
// Gimelshein, "Online normalizer calculation for softmax", 2018). In the end the warps are added up in the same way.
template <int HEAD_WIDTH, int READERS>
__global__ void __launch_bounds__(READERS * WARP)
attend(const float* query, const float* keys, const float* values, const int* position, float* mixed, int width) {
    constexpr int EACH = (HEAD_WIDTH + WARP - 1) / WARP;  // of a head, in one lane
    __shared__ float peaks[READERS], sums[READERS], mixes[READERS][HEAD_WIDTH];
    const int lane = threadIdx.x % WARP, reader = threadIdx.x / WARP, first = blockIdx.x * HEAD_WIDTH;
    float peak = LOWEST, sum = 0, asked[EACH], mix[EACH];
    for (int i = 0; i < EACH; ++i) {
        const int column = lane + i * WARP;
        asked[i] = column < HEAD_WIDTH ? query[first + column] * rsqrtf(HEAD_WIDTH) : 0;
        mix[i] = 0;
    }
    for (int at = reader; at <= *position; at += READERS) {
        const size_t row = (size_t)at * width + first;
        float key[EACH], value[EACH], product = 0;
        for (int i = 0; i < EACH; ++i) {
            const int column = lane + i * WARP;
            key[i] = column < HEAD_WIDTH ? keys[row + column] : 0;
            value[i] = column < HEAD_WIDTH ? values[row + column] : 0;
            product += asked[i] * key[i];
        }
        const float score = warp_sum(product), higher = fmaxf(peak, score);
        const float kept = expf(peak - higher), weight = expf(score - higher);
        for (int i = 0; i < EACH; ++i) mix[i] = mix[i] * kept + weight * value[i];
        sum = sum * kept + weight;
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
        mixed[first + column] = value / total;
    }
}

// The gate's SiLU times what it lets through.
__global__ void swiglu(float* gate, const float* up, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) gate[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
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

// One block takes the token with the highest score, of equals the first, writes it down as the next where the prompt
// does not say which that is, and goes there. At the last of `length` positions it stays.
__global__ void choose(const float* logits, int* tokens, int* position, int vocabulary, int prompt, int length) {
    __shared__ Choice best[WARP];
    Choice mine = {LOWEST, vocabulary - 1};
    for (int i = threadIdx.x; i < vocabulary; i += blockDim.x) mine = better(mine, {logits[i], i});
    mine = best_of_warp(mine);
    if (threadIdx.x % WARP == 0) best[threadIdx.x / WARP] = mine;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    mine = best_of_warp(best[threadIdx.x < blockDim.x / WARP ? threadIdx.x : 0]);
    if (threadIdx.x > 0) return;
    const int next = *position + 1;
    if (next >= length) return;
    if (next >= prompt) tokens[next] = mine.token;
    *position = next;
}
