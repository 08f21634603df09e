"""Modules of CUDA C++ or compiled code, and the kernels that come from them."""
