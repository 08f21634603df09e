"""A plugin of pytest: ``pytest --aiocuda-check`` runs kernels on the emulated driver, and looks for their bugs.

A test fails with what was reported of its kernels. Without the option this module does nothing, and nothing of aiocuda
is imported: pytest loads it in every session, also where no test has a kernel.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

__all__: list[str] = []

_CHECKS = ("memory", "races", "init", "sync")
_DRIVER = "AIOCUDA_DRIVER"
_CHECK = "AIOCUDA_EMULATOR_CHECK"
# How long the plugin waits after a phase for kernels that still run. A kernel may wait for what the test does next.
# After the setup that is the test's body. No wait then: it would put an order between fixtures and body that the
# test did not ask for. After the body it is a fixture's end, and after that the end of a fixture of the module.
_PATIENCE_S = {"setup": 0.0, "call": 1.0, "teardown": 5.0}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--aiocuda-check``."""
    parser.getgroup("aiocuda").addoption(
        "--aiocuda-check",
        nargs="?",
        const=",".join(_CHECKS),
        metavar="CHECKS",
        help="Run kernels on the emulated driver and look for their bugs: a list of memory, races, init and sync, "
        "separated by commas (the default: all). A test whose kernels were reported fails with the reports. "
        "Write --aiocuda-check=races before the name of a test, or a directory.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the driver's checks, if they are asked for: before a conftest.py may start the driver, which reads them."""
    asked = early_config.known_args_namespace.aiocuda_check
    if asked is None:
        return
    unknown = [each for each in asked.split(",") if each not in _CHECKS]
    if unknown:
        raise pytest.UsageError(
            f"--aiocuda-check={asked}: there is no check {unknown[0]!r}; name some of {', '.join(_CHECKS)}, separated "
            "by commas, or write --aiocuda-check alone (as the last argument) for all of them"
        )
    if os.environ.get(_DRIVER, "auto") not in ("auto", "emulated"):
        raise pytest.UsageError(
            f"--aiocuda-check looks at kernels on the emulated driver, and {_DRIVER} is {os.environ[_DRIVER]!r}: unset "
            "it, or set it to emulated. On a GPU, run the tests under compute-sanitizer"
        )
    if _is_running() and os.environ.get(_CHECK) != asked:
        raise pytest.UsageError("--aiocuda-check comes too late: another plugin has started the CUDA driver")
    os.environ[_DRIVER] = "emulated"
    os.environ[_CHECK] = asked


def pytest_configure(config: pytest.Config) -> None:
    """Look for reports, if they are asked for."""
    if config.getoption("--aiocuda-check") is not None:
        config.pluginmanager.register(_Checks(), "aiocuda-checks")


def _is_running() -> bool:
    if "aiocuda" not in sys.modules:
        return False
    from aiocuda._driver import checking  # noqa: PLC0415 - imported by the tests before, or not at all

    return checking.is_driver_loaded()


class _Checks:
    """Looks for reports after each phase of each test; there only if the option is given."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from _checked(item, "setup")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from _checked(item, "call")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        yield from _checked(item, "teardown")


def _checked(item: pytest.Item, phase: str) -> Generator[None, None, None]:
    try:
        yield
    except BaseException as error:
        is_end = isinstance(error, KeyboardInterrupt | SystemExit | pytest.exit.Exception)
        if reports := _reports(0 if is_end else _PATIENCE_S[phase]):
            item.add_report_section(phase, "aiocuda checks", "\n".join(reports))
        raise
    if reports := _reports(_PATIENCE_S[phase]):
        pytest.fail("the checks of kernels reported:\n" + "\n".join(f"- {each}" for each in reports), pytrace=False)


def _reports(patience_s: float) -> list[str]:
    if not _is_running():
        return []  # no kernel can have run
    from aiocuda._driver import checking  # noqa: PLC0415 - as above

    if patience_s > 0:
        checking.finish_work(patience_s)
    return [str(each) for each in (*checking.take_kernel_reports(), *checking.take_race_reports())]
