"""Clusters where Ray is not installed, each in a process of its own: other tests' cluster asks Ray at any time."""

from __future__ import annotations

import re

import pytest

PROGRAM = """
import sys
sys.modules["ray"] = None
import math, anyio, aiocuda as ac
from aiocuda.cluster import start

async def main():
    async with start(**{arguments}):
        pass

for options in (
    {{"backend": "asyncio"}}, {{"backend": "asyncio", "backend_options": {{"use_uvloop": True}}}}, {{"backend": "trio"}}
):
    try:
        anyio.run(main, **options)
    except ac.AiocudaError as error:
        print(type(error).__name__, error)
"""


def test_the_error_says_how_to_install_it(lines_of):
    found = lines_of(PROGRAM.format(arguments={"workers": 1}))
    assert len(found) == 3
    for line in found:
        assert line.startswith("MissingPackageError clusters need Ray")
        assert line.endswith('pip install "aiocuda[ray]"')


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("dict(workers=0)", "workers"),
        ("dict(workers=1, gpus=0)", "gpus"),
        *((f"dict(workers=1, answers_within_s={each})", "time-out|within_s is") for each in (-1, 0, "math.nan", None)),
    ],
)
def test_numbers_that_are_none_are_refused_before_ray_is_asked_for(lines_of, arguments: str, says: str):
    found = lines_of(PROGRAM.format(arguments=arguments))
    assert len(found) == 3
    for line in found:
        assert line.startswith("ArgumentValueError ")
        assert re.search(says, line)
