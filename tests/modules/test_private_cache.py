"""Code in the cache on disk is run, so only the user may have access. aiocuda does not use another cache, and says so
once.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aiocuda._driver.private_cache import PrivateCache, private_directory

PROGRAM = """
import warnings
warnings.simplefilter("always")
import numpy as np
import aiocuda as ac
kernel = ac.kernel('extern "C" __global__ void k(int* x) {{ *x = {number}; }}')
other = ac.kernel('extern "C" __global__ void k(int* x) {{ *x = {number} + 1; }}')
print([int(ac.to_host(each(ac.zeros(1, np.int32), grid=1, block=1)).sync()[0]) for each in (kernel, other)])
"""


def run(directory: Path, number: int = 7) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, AIOCUDA_CACHE_DIR=str(directory))
    command = [sys.executable, "-c", PROGRAM.format(number=number)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_directories_are_the_users_alone(tmp_path: Path):
    mask = os.umask(0)
    try:
        directory = private_directory(tmp_path / "made" / "anew")
    finally:
        os.umask(mask)
    assert mode_of(directory) == 0o700


def test_one_that_others_may_read_is_closed_to_them(tmp_path: Path):
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o755)
    assert private_directory(directory) == directory
    assert mode_of(directory) == 0o700


def test_one_that_others_may_write_to_is_refused(tmp_path: Path):
    directory = tmp_path / "open"
    directory.mkdir()
    for mode in (0o720, 0o702, 0o777):
        directory.chmod(mode)
        with pytest.raises(PermissionError, match="others may write"):
            private_directory(directory)


def test_one_that_others_may_replace_is_refused(tmp_path: Path):
    above = tmp_path / "everybodys"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(PermissionError, match="others may replace"):
        private_directory(above / "mine")
    above.chmod(0o1777)  # as /tmp is
    assert mode_of(private_directory(above / "mine")) == 0o700


def test_a_link_is_refused(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError, match="link"):
        private_directory(tmp_path / "link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_someone_elses_is_refused(tmp_path: Path):
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o700)
    os.chown(directory, 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to user 65534"):
        private_directory(directory)


def test_entries_of_others_are_dropped(tmp_path: Path):
    directory = private_directory(tmp_path / "cache")
    PrivateCache(directory, 1 << 20)[b"key"] = b"code"
    (entry,) = (each for each in directory.rglob("*") if each.is_file())
    assert PrivateCache(directory, 1 << 20).get(b"key") == b"code"
    entry.chmod(0o666)
    assert PrivateCache(directory, 1 << 20).get(b"key") is None
    assert not entry.exists()
    (tmp_path / "theirs").write_bytes(b"theirs")
    entry.symlink_to(tmp_path / "theirs")
    assert PrivateCache(directory, 1 << 20).get(b"key") is None
    assert (tmp_path / "theirs").exists()


def test_a_cache_that_cannot_be_written_is_told_and_nothing_else(tmp_path: Path):
    directory = private_directory(tmp_path / "cache")
    cache = PrivateCache(directory, 1 << 20)
    for each in sorted(directory.rglob("*"), reverse=True):
        each.rmdir()
    directory.rmdir()
    directory.write_text("no directory")
    with pytest.warns(RuntimeWarning, match="keeps no compiled kernels"):
        cache[b"key"] = b"code"
    cache[b"key"] = b"code"  # a second warning would be an error here
    assert cache.get(b"key") is None


@pytest.mark.parametrize("what", ["a file", "others may write", "a link to nowhere"])
def test_kernels_compile_without_a_cache_and_one_warning_says_why(tmp_path: Path, what: str):
    directory = tmp_path / "cache"
    if what == "a file":
        directory.write_text("no directory")
    elif what == "a link to nowhere":
        directory.symlink_to(tmp_path / "nowhere")
    else:
        for name in ("modules", "programs"):
            (directory / name).mkdir(parents=True)
            (directory / name).chmod(0o777)
    ended = run(directory)
    assert ended.stdout.split("\n")[0] == "[7, 8]", ended.stderr
    assert ended.stderr.count("aiocuda keeps no compiled kernels") == 1


def test_what_is_kept_is_closed_to_others(tmp_path: Path):
    ended = run(tmp_path / "cache")
    assert ended.stdout.split("\n")[0] == "[7, 8]", ended.stderr
    assert "keeps no compiled kernels" not in ended.stderr
    kept = [each for each in (tmp_path / "cache").rglob("*") if each.is_file()]
    assert len(kept) >= 2
    assert {mode_of(each) for each in kept} == {0o600}
    assert {mode_of(each) for each in (tmp_path / "cache").iterdir()} == {0o700}
