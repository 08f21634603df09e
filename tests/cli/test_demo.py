"""``aiocuda demo`` as it is started, and ended, from a shell; what it trains is tested in tests/examples."""

from __future__ import annotations

import pytest
from aiocuda._examples.mlp import mlp

from aiocuda import _cli


def test_control_c_ends_the_demo_without_a_traceback(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(mlp, "run_demo", interrupted)
    assert _cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "aiocuda demo: interrupted\n"


@pytest.mark.parametrize("command", ["emulate", "trace"])
def test_a_missing_program_is_all_that_is_missing(command, capsys):
    with pytest.raises(SystemExit):
        _cli.main([command])
    assert "the following arguments are required: program.py\n" in capsys.readouterr().err
