"""Code and memory of other frameworks: a module for each framework. None of them is imported before it is used."""

from aiocuda.interop import cupy as cupy
from aiocuda.interop import cutile as cutile
from aiocuda.interop import numba as numba
from aiocuda.interop import opentelemetry as opentelemetry
from aiocuda.interop import rmm as rmm
from aiocuda.interop import torch as torch
from aiocuda.interop import triton as triton
from aiocuda.interop import warp as warp

__all__ = ["cupy", "cutile", "numba", "opentelemetry", "rmm", "torch", "triton", "warp"]
