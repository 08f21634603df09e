// The CUDA C++ of the example: what a two-layer network needs to be trained, one kernel per idea.
// Matrices are row-major. Const pointers are read, the others are read and written.

constexpr int TILE = 16;

// c (m x n) = op(a) (m x k) times op(b) (k x n), where op transposes or not.
template <bool TransposeA, bool TransposeB>
__global__ void __launch_bounds__(TILE * TILE)
gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int start = 0; start < k; start += TILE) {
        const int inner_a = start + x, inner_b = start + y;
        tile_a[y][x] = row >= m || inner_a >= k ? 0 : TransposeA ? a[inner_a * m + row] : a[row * k + inner_a];
        tile_b[y][x] = column >= n || inner_b >= k ? 0 : TransposeB ? b[column * k + inner_b] : b[inner_b * n + column];
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += tile_a[y][i] * tile_b[i][x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

template <bool Relu>
__global__ void add_bias(float* x, const float* bias, int rows, int columns) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const float value = x[i] + bias[i % columns];
    x[i] = Relu && value < 0 ? 0 : value;
}

// Each row of logits becomes the gradient of the mean loss; loss receives the row's own loss.
__global__ void softmax_cross_entropy(float* logits, float* loss, const unsigned char* labels,
                                      int rows, int classes, float scale) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float* const z = logits + row * classes;
    const int label = labels[row];
    float largest = z[0], sum = 0;
    for (int i = 1; i < classes; ++i) largest = fmaxf(largest, z[i]);
    for (int i = 0; i < classes; ++i) sum += expf(z[i] - largest);
    const float log_sum = logf(sum) + largest;
    loss[row] = log_sum - z[label];
    for (int i = 0; i < classes; ++i) z[i] = scale * (expf(z[i] - log_sum) - (i == label));
}

// The gradient passes where the hidden unit was active.
__global__ void relu_backward(float* gradient, const float* hidden, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && hidden[i] <= 0) gradient[i] = 0;
}

// A block sums one column: strided sums, then a tree in shared memory. The block is a power of two.
__global__ void __launch_bounds__(64) sum_rows(const float* x, float* sum, int rows, int columns) {
    __shared__ float part[64];
    float mine = 0;
    for (int row = threadIdx.x; row < rows; row += blockDim.x) mine += x[row * columns + blockIdx.x];
    part[threadIdx.x] = mine;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sum[blockIdx.x] = part[0];
}

// Stochastic gradient descent with momentum.
__global__ void sgd(float* weight, float* velocity, const float* gradient, float rate, float momentum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    velocity[i] = momentum * velocity[i] - rate * gradient[i];
    weight[i] += velocity[i];
}
