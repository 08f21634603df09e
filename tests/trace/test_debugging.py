"""`ac.debug` finds the habits of real programs, and none in the examples. Latches say what waits for what."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda._engine import held_up
from aiocuda._trace import findings

N = 32 << 10  # items of 4 bytes: more than what the host decides by
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def whatever_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have habits found that cost next to nothing."""
    monkeypatch.setattr(findings, "LEAST_NS", 0)
    monkeypatch.setattr(findings, "LEAST_PART", 0)


def lines_of(debugging: ac.Debugging, kind: str) -> list[set[int]]:
    """Return the lines of this file that a kind of finding names, of each."""
    found = [each for each in debugging.findings if each.kind == kind]
    assert all(str(each) and each.count and each.cost_ns >= 0 for each in found)
    places = [place for each in found for place in each.places]
    assert all(place.startswith(f"{__file__}:") for place in places), places
    return [{int(place.rpartition(":")[2]) for place in each.places} for each in found]


def line_of(text: str) -> int:
    """Return the line of this file that has a mark, such as ``# here``."""
    (found,) = (i for i, each in enumerate(Path(__file__).read_text().splitlines(), 1) if each.endswith(f"# {text}"))
    return found


# ----- An event loop is held


def test_functions_syncs_and_compilations_that_hold_a_loop(run: Any) -> None:
    kernel = ac.kernel('extern "C" __global__ void held_while_debugging(int* x) {}')

    async def main() -> None:
        await ac.empty(1)
        await ac.value(1).map(lambda x: x + 1)  # map
        ac.value(2).map(lambda x: x).sync()  # sync
        kernel.compile()  # compile

    with ac.debug(held_ms=0, report=False) as debugging:
        run(main)
    found = set.union(*lines_of(debugging, "held loop"))
    assert found >= {line_of("map"), line_of("sync"), line_of("compile")}
    texts = " | ".join(each.text for each in debugging.findings)
    assert re.search(r"sync\(\) of \S.*? at \S+test_debugging.py:\d+, held the event loop up for", texts)
    assert re.search(r"loading kernel held_while_debugging on device 0, at ", texts)


def test_a_thread_without_a_loop_may_be_held() -> None:
    with ac.debug(held_ms=0, report=False) as debugging:
        ac.value(2).map(lambda x: x).sync()
    assert debugging.findings == ()


# ----- Copies


@pytest.mark.usefixtures("whatever_it_costs")
def test_a_copy_on_the_stream_of_a_kernel_that_it_does_not_need(run: Any, latch: Any) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        target = await ac.empty_host(N)
        stream = ac.Device(0).stream()
        latch.hold(stream)
        with ac.use(stream):
            copied = ac.copy(target, x).submit()  # copied late
        for _ in range(4):  # on other streams, while the copy waits
            await ac.to_host(ac.ones(N))
        latch.release()
        await copied
        assert target.numpy()[0] == 1.0

    with ac.debug(report=False) as debugging:
        run(main)
    (found,) = (each for each in debugging.findings if each.kind == "serial copies")
    assert f"{__file__}:{line_of('copied late')}" in found.places
    assert "behind the launch of hold" in found.text


@pytest.mark.usefixtures("whatever_it_costs")
@pytest.mark.parametrize("way", ["page-locked", "pageable"])
def test_an_array_that_goes_back_and_forth(run: Any, way: str) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        held = np.empty(N, np.float32)
        for _ in range(4):
            back = ac.to_host(x) if way == "page-locked" else ac.copy(held, x)  # to the host
            x = await ac.to_device(await back)  # and back

    with ac.debug(report=False) as debugging:
        run(main)
    assert lines_of(debugging, "back and forth") == [{line_of("to the host"), line_of("and back")}]
    (found,) = (each for each in debugging.findings if each.kind == "back and forth")
    assert found.count == 4


@pytest.mark.usefixtures("whatever_it_costs")
def test_what_a_kernel_writes_between_does_not_go_back_and_forth(run: Any, kernels: Any) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        for _ in range(4):
            x = await ac.to_device(await ac.to_host(kernels.scale(2.0, x, ac.empty(N), N, threads=N)))

    async def devices_alone() -> None:
        host = await ac.empty_host(N)
        host.numpy()[:] = 1
        for _ in range(4):
            await ac.to_host(kernels.scale(2.0, ac.to_device(host), ac.empty(N), N, threads=N))

    with ac.debug(report=False) as debugging:
        run(main)
    assert [each.text for each in debugging.findings if each.kind == "back and forth" and each.count > 4] == []
    with ac.debug(report=False) as debugging:
        run(devices_alone)
    assert lines_of(debugging, "back and forth") == []


@pytest.mark.usefixtures("whatever_it_costs")
def test_memory_of_the_hosts_that_was_freed_is_no_other_arrays(run: Any) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        for _ in range(4):
            await ac.copy(np.empty(N, np.float32), x)  # dropped at once
            await ac.to_device(np.ones(N, np.float32))  # mostly at the same address

    with ac.debug(report=False) as debugging:
        run(main)
    assert lines_of(debugging, "back and forth") == []


@pytest.mark.usefixtures("whatever_it_costs")
def test_files_that_are_read_and_written_do_not_go_back_and_forth(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        await ac.write(tmp_path / "from", ac.ones(N))
        for _ in range(4):
            x = await ac.read(tmp_path / "from", N, np.float32)
            await ac.write(tmp_path / "to", x)
        for _ in range(4):
            await ac.to_host(ac.read(tmp_path / "from", N, np.float32))
            await ac.write(tmp_path / "to", ac.to_device(np.ones(N, np.float32)))

    with ac.debug(report=False) as debugging:
        run(main)
    assert lines_of(debugging, "back and forth") == []


# ----- Awaits and streams


@pytest.mark.usefixtures("whatever_it_costs")
def test_awaits_in_a_loop(run: Any, kernels: Any) -> None:
    async def main() -> None:
        results = []
        for _ in range(6):
            results.append(await kernels.scale(2.0, ac.ones(N), ac.empty(N), N, threads=N))  # one by one

    with ac.debug(report=False) as debugging:
        run(main)
    assert {line_of("one by one")} in lines_of(debugging, "await in a loop")


@pytest.mark.usefixtures("whatever_it_costs")
def test_awaits_that_need_each_other_and_one_await_of_many(run: Any, kernels: Any) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        for _ in range(6):
            x = await kernels.scale(2.0, x, ac.empty(N), N, threads=N)
        await ac.zip(*(kernels.scale(2.0, x, ac.empty(N), N, threads=N) for _ in range(6)))

    with ac.debug(report=False) as debugging:
        run(main)
    assert lines_of(debugging, "await in a loop") == []


# ----- Its block


def test_it_tells_at_the_end_also_of_a_block_that_fails(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        await ac.empty(1)
        await ac.value(1).map(lambda x: x)  # told
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ac.debug(held_ms=0):
        run(main)
    at = f"{re.escape(__file__)}:{line_of('told')}"
    assert re.search(rf"(?m)^aiocuda: .*, at {at}, held the event loop up", capsys.readouterr().err)


def test_without_a_standard_error_nothing_is_printed(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        await ac.empty(1)
        await ac.value(1).map(lambda x: x)

    with monkeypatch.context() as patched, ac.debug(held_ms=0) as debugging:
        run(main)
        patched.setattr("sys.stderr", None)
    assert debugging.findings
    assert capsys.readouterr() == ("", "")


def test_whoever_watched_before_watches_again() -> None:
    told: list[str] = []
    before = held_up.watch(0.0, lambda what, *_: told.append(what))
    try:
        with ac.debug(report=False):
            pass
        anyio.run(_be_held_up)
    finally:
        held_up.restore(before)
    assert told == ["being held up"]


async def _be_held_up() -> None:
    with held_up.Watched("being held up"):
        pass


def test_a_block_is_entered_once_and_told_of_when_it_has_ended() -> None:
    debugging = ac.debug(report=False)
    with pytest.raises(ac.AiocudaError, match="ended"):
        _ = debugging.findings
    with debugging:
        pass
    with pytest.raises(ac.AiocudaError, match="make another one"), debugging:
        pass


def test_it_and_a_trace_do_not_record_at_once(tmp_path: Path) -> None:
    with ac.debug(report=False), pytest.raises(ac.AiocudaError, match=r"ac\.debug\(\)"):
        ac.trace("inner", output=tmp_path).__enter__()
    with ac.debug(report=False) as debugging:
        pass
    assert debugging.findings == ()


@pytest.mark.parametrize("held_ms", [-1, float("nan")])
def test_times_that_are_none_are_refused(held_ms: float) -> None:
    with pytest.raises(ac.ArgumentValueError, match="held_ms"):
        ac.debug(held_ms=held_ms)


@pytest.mark.usefixtures("whatever_it_costs")
def test_a_trace_has_the_findings_in_its_summary_and_its_page(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        x = await ac.ones(N)
        for _ in range(4):
            x = await ac.to_device(await ac.to_host(x))

    with ac.trace("found", output=tmp_path, report=False) as traced:
        run(main)
    (found,) = (each for each in traced.findings if each.kind == "back and forth")
    assert f"finding: {found}" in traced.summary()
    assert found.text in traced.page_path.read_text(encoding="utf-8").replace("\\u0027", "'")


PROGRAM = """
import runpy, sys
import aiocuda as ac
sys.argv = [{path!r}]
sys.path.insert(0, {folder!r})
with ac.debug(held_ms=1e6, report=False) as debugging:
    try:
        runpy.run_path({path!r}, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
found = [str(each) for each in debugging.findings]
assert not found, found
"""


@pytest.mark.parametrize(
    "path", [*sorted(EXAMPLES.glob("[0-9]*.py")), EXAMPLES / "mlp" / "mlp.py"], ids=lambda path: path.stem
)
def test_the_examples_have_no_such_habits(in_process: Any, path: Path) -> None:
    """Beside those that hold a loop, which depend on how busy the machine is."""
    if path.stem == "15_library_handles" and ac.Device(0).is_emulated:
        pytest.skip("the example needs an NVIDIA GPU")
    if path.stem == "16_npp":
        pytest.importorskip("nvidia.npp", reason="the example needs NPP")
    in_process(PROGRAM.format(path=str(path), folder=str(path.parent)))
