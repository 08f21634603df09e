"""The files that a source includes, found without a preprocessor: a kept image is used only while they are unchanged.

Always true: a file that the compiler may read is in the digest. Conditionals are not evaluated, so more may be in it;
an include whose name a macro makes cannot be followed, and then there is no digest.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["digest_of_includes", "include_directories"]

_INCLUDE: Final = re.compile(
    rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>|(?P<other>[^\s"<]))',
    re.MULTILINE,
)
# With the value behind "=" or in the next option; -I also takes it at once.
_DIRECTORY_OPTIONS: Final = ("-I", "--include-path")
_FILE_OPTIONS: Final = ("-include", "--pre-include")


def include_directories(options: Sequence[str]) -> list[Path]:
    """List the directories that options of NVRTC add to the search for includes, in order."""
    return [Path(value) for value in _values(options, _DIRECTORY_OPTIONS)]


def digest_of_includes(sources: Sequence[str], options: Sequence[str]) -> str | None:
    """Digest the contents of all files that sources may include, by way of others too.

    Parameters
    ----------
    sources
        CUDA C++.
    options
        Options of NVRTC; their directories are searched.

    Returns
    -------
    str or None
        A SHA-256 of the names, the places and the contents; None where a macro makes an include's name.
    """
    directories = include_directories(options)
    waiting: list[tuple[str, Path | None]] = []  # what is included, and the directory of the file that says so
    for source in sources:
        found = _includes_in(source.encode())
        if found is None:
            return None
        waiting += [(name, Path.cwd()) for name in found]  # where NVRTC takes a source to be that has no directory
    waiting += [(name, None) for name in _values(options, _FILE_OPTIONS)]
    seen: dict[str, str] = {}
    while waiting:
        name, beside = waiting.pop()
        # All that the name can mean, not the first alone: #include_next goes on from there.
        for path in [directory / name for directory in ([beside] if beside else []) + directories]:
            try:
                status = path.stat()
            except OSError:
                continue
            key = str(path.resolve())
            if key in seen:
                continue
            content, included = _read(key, status.st_mtime_ns, status.st_size)
            if included is None:
                return None
            seen[key] = content
            waiting += [(each, path.parent) for each in included]
    digest = hashlib.sha256()
    for key, content in sorted(seen.items()):
        digest.update(f"{key}\0{content}\0".encode())
    return digest.hexdigest()


@functools.lru_cache(maxsize=4096)
def _read(path: str, _mtime_ns: int, _size_bytes: int) -> tuple[str, tuple[str, ...] | None]:
    """Return a file's digest and what it includes; read again when its time or size has changed."""
    try:
        content = Path(path).read_bytes()
    except OSError:  # a directory of that name, or a file that went away
        return "", ()
    return hashlib.sha256(content).hexdigest(), _includes_in(content)


def _includes_in(content: bytes) -> tuple[str, ...] | None:
    names = []
    for match in _INCLUDE.finditer(content):
        if match["other"] is not None:
            return None
        names.append((match["quoted"] or match["angled"]).decode(errors="replace"))
    return tuple(names)


def _values(options: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    waiting = iter(options)
    for option in waiting:
        name, equals, value = option.partition("=")
        if name in names:
            found = value if equals else next(waiting, "")
        elif "-I" in names and option.startswith("-I"):
            found = option[2:]
        else:
            continue
        if found.strip():
            yield found.strip()
