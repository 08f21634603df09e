// A particle, for all kernels of the program. build_workflow.py has the same as a NumPy dtype.
#pragma once

struct Particle {
    float4 position;
    float4 velocity;
};
