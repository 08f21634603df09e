// American put options by binomial trees, one block for each option. A tree of n steps has n + 1 leaves, in shared
// memory; each step back to the root keeps the better of waiting and exercising.
struct Option {
    float spot, strike, rate, volatility, years;
};

extern "C" __global__ void price(const float* options, float* prices, int steps) {
    extern __shared__ float values[];
    const Option option = {options[5 * blockIdx.x], options[5 * blockIdx.x + 1], options[5 * blockIdx.x + 2],
                           options[5 * blockIdx.x + 3], options[5 * blockIdx.x + 4]};
    const float step = option.years / steps, up = expf(option.volatility * sqrtf(step));
    const float likely = (expf(option.rate * step) - 1 / up) / (up - 1 / up), discount = expf(-option.rate * step);
    for (int i = threadIdx.x; i <= steps; i += blockDim.x)
        values[i] = fmaxf(option.strike - option.spot * powf(up, 2 * i - steps), 0);
    __syncthreads();
    for (int level = steps - 1; level >= 0; --level) {
        // A thread reads what its neighbour writes: all read before any of a round writes.
        for (int begin = 0; begin <= level; begin += blockDim.x) {
            const int i = begin + threadIdx.x;
            float waiting = 0;
            if (i <= level) waiting = discount * (likely * values[i + 1] + (1 - likely) * values[i]);
            __syncthreads();
            if (i <= level) values[i] = fmaxf(waiting, option.strike - option.spot * powf(up, 2 * i - level));
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) prices[blockIdx.x] = values[0];
}
