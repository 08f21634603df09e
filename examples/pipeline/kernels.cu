// From a coloured image to its edges, in three steps. One thread for each pixel.

// Brightness as the eye has it, of red, green and blue bytes.
extern "C" __global__ void luminance(const unsigned char* image, float* grey, unsigned pixels) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pixels) grey[i] = 0.299f * image[3 * i] + 0.587f * image[3 * i + 1] + 0.114f * image[3 * i + 2];
}

__device__ float at(const float* image, int row, int column, int height, int width) {
    row = min(max(row, 0), height - 1);
    column = min(max(column, 0), width - 1);
    return image[(size_t)row * width + column];
}

// Binomial weights, 5 by 5. The image goes on at its edges as it ends there.
extern "C" __global__ void blur(const float* from, float* to, int height, int width) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (unsigned)height * width) return;
    const float weights[5] = {1.f / 16, 4.f / 16, 6.f / 16, 4.f / 16, 1.f / 16};
    int row = i / width, column = i % width;
    float sum = 0;
    for (int y = 0; y < 5; ++y)
        for (int x = 0; x < 5; ++x)
            sum += weights[y] * weights[x] * at(from, row + y - 2, column + x - 2, height, width);
    to[i] = sum;
}

// How steep the image is, by Sobel's operator.
extern "C" __global__ void edges(const float* from, unsigned char* to, int height, int width) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (unsigned)height * width) return;
    int row = i / width, column = i % width;
    float across = 0, down = 0;
    for (int k = -1; k <= 1; ++k) {
        float weight = k == 0 ? 2 : 1;
        across += weight * (at(from, row + k, column + 1, height, width) - at(from, row + k, column - 1, height, width));
        down += weight * (at(from, row + 1, column + k, height, width) - at(from, row - 1, column + k, height, width));
    }
    to[i] = (unsigned char)min(sqrtf(across * across + down * down), 255.f);
}
