"""Reading CUDA C++: kernels, their parameters, structs and variables; knows no device."""
