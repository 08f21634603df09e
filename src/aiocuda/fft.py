"""Discrete Fourier transforms."""

from aiocuda._algorithms.fourier import fft as fft
from aiocuda._algorithms.fourier import fftn as fftn
from aiocuda._algorithms.fourier import ifft as ifft
from aiocuda._algorithms.fourier import ifftn as ifftn
from aiocuda._algorithms.fourier import irfft as irfft
from aiocuda._algorithms.fourier import rfft as rfft
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["fft", "fftn", "ifft", "ifftn", "irfft", "rfft"]

_name_publicly(__name__, globals(), __all__)
