"""Frameworks that are not installed, and that nobody has asked for."""

from __future__ import annotations

import pytest


def test_importing_aiocuda_imports_no_framework(in_process):
    done = in_process(
        """
        import sys
        import aiocuda as ac
        import aiocuda.interop.torch, aiocuda.interop.cupy, aiocuda.interop.numba, aiocuda.interop.warp
        import aiocuda.interop.triton, aiocuda.interop.cutile, aiocuda.interop.rmm
        ac.ones(3).sync()
        print(sorted({"torch", "cupy", "numba", "numba_cuda", "warp", "triton", "cuda.tile", "rmm"} & set(sys.modules)))
        """
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("framework", "package", "name", "verbs"),
    [
        ("torch", "torch", "PyTorch", ["op"]),
        ("cupy", "cupy", "CuPy", ["op", "kernel"]),
        ("numba", "numba_cuda", "Numba-CUDA", ["op", "kernel"]),
        ("warp", "warp", "Warp", ["op", "kernel"]),
        ("triton", "triton", "Triton", ["kernel"]),
        ("cutile", "cuda.tile", "cuTile", ["kernel"]),
    ],
)
def test_what_is_not_installed_is_an_error_where_it_is_needed(in_process, framework, package, name, verbs):
    done = in_process(
        f"""
        import sys
        sys.modules[{package!r}] = None  # as if it were not installed
        import aiocuda as ac
        for verb in {verbs}:
            try:
                getattr(ac.interop.{framework}, verb)(lambda *_: None)
            except ac.errors.MissingPackageError as error:
                print(error)
        """
    )
    said = done.stdout.splitlines()
    assert len(said) == len(verbs), done
    for each in said:
        assert each.startswith(f"an operation of {name}'s needs {name}, which is not installed: pip install")
