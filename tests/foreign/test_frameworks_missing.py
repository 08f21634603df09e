"""Frameworks that are not installed, and that nobody has asked for."""

from __future__ import annotations

import pytest


def test_importing_aiocuda_imports_no_framework(in_process):
    done = in_process(
        """
        import sys
        import aiocuda as ac
        import aiocuda.interop.torch, aiocuda.interop.cupy, aiocuda.interop.numba, aiocuda.interop.warp
        import aiocuda.interop.triton, aiocuda.interop.cutile
        ac.ones(3).sync()
        print(sorted({"torch", "cupy", "numba", "numba_cuda", "warp", "triton", "cuda.tile"} & set(sys.modules)))
        """
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("framework", "package", "name"),
    [
        ("torch", "torch", "PyTorch"),
        ("cupy", "cupy", "CuPy"),
        ("numba", "numba_cuda", "Numba-CUDA"),
        ("warp", "warp", "Warp"),
    ],
)
def test_a_framework_that_is_not_installed_is_an_error_where_it_is_needed(in_process, framework, package, name):
    done = in_process(
        f"""
        import sys
        sys.modules[{package!r}] = None  # as if it were not installed
        import aiocuda as ac
        try:
            ac.interop.{framework}.op(lambda *_: None)
        except ac.errors.MissingPackageError as error:
            print(error)
        """
    )
    assert done.stdout.startswith(f"an operation of {name}'s needs {name}, which is not installed: pip install")


@pytest.mark.parametrize(
    ("language", "package", "name"),
    [
        ("triton", "triton", "Triton"),
        ("cupy", "cupy", "CuPy"),
        ("cutile", "cuda.tile", "cuTile"),
        ("numba", "numba_cuda", "Numba-CUDA"),
        ("warp", "warp", "Warp"),
    ],
)
def test_a_language_that_is_not_installed_is_an_error_where_a_kernel_is_given(in_process, language, package, name):
    done = in_process(
        f"""
        import sys
        sys.modules[{package!r}] = None  # as if it were not installed
        import aiocuda as ac
        try:
            ac.interop.{language}.kernel(lambda *_: None)
        except ac.errors.MissingPackageError as error:
            print(error)
        """
    )
    assert done.stdout.startswith(f"an operation of {name}'s needs {name}, which is not installed: pip install")
