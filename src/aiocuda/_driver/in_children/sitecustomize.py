"""Run by Python when it starts, in processes below ``aiocuda emulate``: they, too, use the emulated driver."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _run_next() -> None:
    """Run the sitecustomize of the environment, in whose place this one stands."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != here]
    this = sys.modules.pop("sitecustomize")  # so that Python looks for another one
    found = importlib.util.find_spec("sitecustomize")
    if found is None or found.loader is None:
        sys.modules["sitecustomize"] = this  # Python, which imports it, expects it there
        return
    module = importlib.util.module_from_spec(found)
    sys.modules["sitecustomize"] = module
    found.loader.exec_module(module)


_run_next()
if importlib.util.find_spec("aiocuda") is not None:  # another Python may be without it
    from aiocuda._driver.select import select_driver

    select_driver()
