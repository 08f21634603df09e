"""Chooses NVIDIA's driver or the emulated one, and loads it.

``cuda.bindings`` takes the ``libcuda.so.1`` that is loaded already, so loading the emulated
library first redirects it; and for the same reason NVIDIA's library is loaded into this process
only when it is the one to use: a second library of that name would never be looked at.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from aiocuda._driver import forwarded_runtime, probe
from aiocuda._driver.select import VARIABLE
from aiocuda._naming import name_publicly
from aiocuda.errors import DriverNotFoundError, DriverSelectionError

__all__ = ["DriverInfo", "choose_by_device", "choose_emulated", "choose_nvidia", "emulator_directory"]

DRIVER_SONAME = "libcuda.so.1"
NVRTC_SONAME = "libnvrtc.so.13"
# Libraries that some programs use beside the driver.
COMPANION_SONAMES = ("libnvidia-ml.so.1", "libnvJitLink.so.13", "libnccl.so.2")
# NVIDIA's kernel driver shows itself by one of these: desktop and server, WSL 2, Tegra.
_DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")

# The oldest driver that cuda.bindings 13 works on.
_MINIMUM_VERSION = 13000

_PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The driver that this process runs on.

    Attributes
    ----------
    kind
        ``"nvidia"`` or ``"emulated"``.
    library_path
        The file of the loaded ``libcuda.so.1``.
    version
        The CUDA version of the driver as it gives it: 13000 for 13.0.
    nvrtc_path
        The file of the emulated ``libnvrtc.so.13``; None on NVIDIA's driver, where
        ``cuda.pathfinder`` finds NVRTC when the first kernel is compiled.
    reason
        Why this driver was chosen, in words.
    """

    kind: Literal["nvidia", "emulated"]
    library_path: str
    version: int
    nvrtc_path: str | None
    reason: str

    @property
    def is_emulated(self) -> bool:
        """Whether kernels run on the CPU."""
        return self.kind == "emulated"

    @property
    def version_text(self) -> str:
        """The version as people write it, such as ``"13.0"``."""
        return format_version(self.version)


class _Finding(NamedTuple):
    """The result of a look for NVIDIA's driver: usable or not, and the lines that say why."""

    usable: bool
    lines: tuple[str, ...]


def format_version(version: int) -> str:
    """Return a CUDA version number such as 13020 as ``"13.2"``."""
    return f"{version // 1000}.{version % 1000 // 10}"


def choose_by_device() -> DriverInfo:
    loaded = _loaded_path(DRIVER_SONAME)
    if loaded is not None:
        if _is_emulated_library(loaded):
            return choose_emulated(f"{loaded} was loaded already")
        # Another library has loaded it and uses it, and no second library of that name can be used beside it.
        return choose_nvidia(f"{loaded} was loaded already")
    finding = _probe_nvidia()
    if finding.usable:
        return choose_nvidia("; ".join(finding.lines))
    return choose_emulated("; ".join(finding.lines))


def choose_nvidia(reason: str) -> DriverInfo:
    loaded = _loaded_path(DRIVER_SONAME)
    if loaded is not None and _is_emulated_library(loaded):
        raise DriverSelectionError(
            "NVIDIA's driver was asked for, but this process already uses aiocuda's emulated "
            f"one, {loaded}; a process keeps its driver: start a new one"
        )
    try:
        library = ctypes.CDLL(DRIVER_SONAME, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        raise _nvidia_not_found(reason, (f"{DRIVER_SONAME} does not load: {error}", *_node_lines())) from None
    answer = probe.ask(library)
    finding = _judge(answer)
    if not finding.usable:
        raise _nvidia_not_found(
            reason,
            (f"loaded {_path_of(library)}", *finding.lines, *_visibility_lines(), *_node_lines()),
        )
    return DriverInfo("nvidia", _path_of(library), answer.version, None, reason)


def choose_emulated(reason: str) -> DriverInfo:
    directory = emulator_directory()
    driver_path = directory / DRIVER_SONAME
    nvrtc_path = directory / NVRTC_SONAME
    driver = _load_as_the_only(driver_path, "CUDA driver")
    _load_as_the_only(nvrtc_path, "NVRTC")
    for soname in COMPANION_SONAMES:
        _load_unless_loaded(directory / soname)
    forwarded_runtime.forward()
    _offer_ziglang()
    return DriverInfo("emulated", str(driver_path), probe.driver_version(driver), str(nvrtc_path), reason)


def _offer_ziglang() -> None:
    """Tell the emulated compiler of the ziglang wheel's executable, for where there is no other compiler."""
    found = importlib.util.find_spec("ziglang")
    if found is not None and found.origin is not None:
        os.environ.setdefault("AIOCUDA_ZIG", str(Path(found.origin).parent / "zig"))


def emulator_directory() -> Path:
    """Return the installed directory of the emulated driver's libraries.

    Raises
    ------
    DriverNotFoundError
        aiocuda was installed without them.
    """
    # An editable install has two places in its __path__: the sources, and what CMake installed.
    places = [Path(place) / "_emulator" for place in sys.modules["aiocuda"].__path__]
    for place in places:
        if all((place / soname).is_file() for soname in (DRIVER_SONAME, NVRTC_SONAME)):
            return place.resolve()
    raise DriverNotFoundError(
        "the emulated CUDA driver is not installed",
        tuple(f"no {DRIVER_SONAME} and {NVRTC_SONAME} in {place}" for place in places),
        "Reinstall aiocuda: its build makes both.",
    )


def _load_as_the_only(path: Path, what: str) -> ctypes.CDLL:
    """Load an emulated library and check that its name now leads to it and to no other."""
    soname = path.name
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        raise DriverNotFoundError(
            f"the emulated {what} cannot be loaded",
            (f"{path}: {error}",),
            "Reinstall aiocuda on this machine: its build makes it for the machine's own system.",
        ) from None
    resolved = _loaded_path(soname)
    if resolved is None or not _same_file(resolved, str(path)):
        raise DriverSelectionError(
            f"the emulated {what} was chosen, but this process already uses {soname} from "
            f"{resolved}; select the driver (import aiocuda) before what loaded that one"
        )
    return library


def _load_unless_loaded(path: Path) -> None:
    """Load an emulated library that aiocuda itself does not need, unless the process uses another of that name.

    PyTorch and its like bring libnvJitLink and libnccl, and load them; they stay theirs.
    """
    if _loaded_path(path.name) is not None:
        return
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    except OSError as error:
        raise DriverNotFoundError(
            f"the emulated {path.name} cannot be loaded",
            (f"{path}: {error}",),
            "Reinstall aiocuda on this machine: its build makes it for the machine's own system.",
        ) from None


def _probe_nvidia() -> _Finding:
    """Find out, without loading it here, whether NVIDIA's driver is usable and has a device."""
    if not any(os.path.exists(node) for node in _DEVICE_NODES):
        return _Finding(False, _node_lines())
    if not sys.executable:
        return _Finding(False, (f"no Python executable to look for a device with; set {VARIABLE}=nvidia",))
    # -I -S: no site-packages, no user's code: the interpreter starts sooner, to run the probe only.
    command = [sys.executable, "-I", "-S", probe.__file__, DRIVER_SONAME]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return _Finding(False, (f"{DRIVER_SONAME} did not initialise within {_PROBE_TIMEOUT_S:g} s",))
    except OSError as error:
        return _Finding(False, (f"a process that looks for a device did not start: {error}",))
    if done.returncode != 0:
        return _Finding(False, (f"initialising {DRIVER_SONAME} ended its process ({done.returncode})",))
    answer = json.loads(done.stdout)
    if "unloadable" in answer:
        return _Finding(False, (f"{DRIVER_SONAME} does not load: {answer['unloadable']}",))
    finding = _judge(probe.Answer(**answer))
    return finding if finding.usable else _Finding(False, finding.lines + _visibility_lines())


def _judge(answer: probe.Answer) -> _Finding:
    if answer.version < _MINIMUM_VERSION:
        return _Finding(
            False,
            (
                f"NVIDIA's driver is of CUDA {format_version(answer.version)}, and "
                f"{format_version(_MINIMUM_VERSION)} or newer is needed",
            ),
        )
    if answer.result != 0:
        return _Finding(
            False,
            (f"NVIDIA's driver does not initialise: CUresult {answer.result}, {answer.explanation}",),
        )
    count = answer.device_count
    if count == 0:
        return _Finding(False, ("NVIDIA's driver has no device",))
    return _Finding(True, (f"NVIDIA's driver has {count} device{'s' if count > 1 else ''}",))


def _nvidia_not_found(reason: str, findings: tuple[str, ...]) -> DriverNotFoundError:
    return DriverNotFoundError(
        f"NVIDIA's CUDA driver was chosen ({reason}) and is not usable",
        findings,
        f"Install NVIDIA's driver of CUDA {format_version(_MINIMUM_VERSION)} or newer and make a "
        f"device visible, or run on the CPU with {VARIABLE}=emulated.",
    )


def _node_lines() -> tuple[str, ...]:
    found = [node for node in _DEVICE_NODES if os.path.exists(node)]
    if found:
        return (f"device nodes: {', '.join(found)}",)
    return (f"no NVIDIA device node (looked for {', '.join(_DEVICE_NODES)})",)


def _visibility_lines() -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return () if visible is None else (f"CUDA_VISIBLE_DEVICES is {visible!r}",)


def _loaded_path(soname: str) -> str | None:
    """Return the file of the loaded library that this name leads to, or None."""
    try:
        library = ctypes.CDLL(soname, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    return _path_of(library)


class _LinkMap(ctypes.Structure):
    """The head of the loader's ``struct link_map``, public in <link.h>."""

    _fields_ = (("l_addr", ctypes.c_void_p), ("l_name", ctypes.c_char_p))


def _path_of(library: ctypes.CDLL) -> str:
    """Return the file a library was loaded from."""
    request_link_map = 2  # RTLD_DI_LINKMAP of <dlfcn.h>
    entry = ctypes.POINTER(_LinkMap)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    if dlinfo(library._handle, request_link_map, ctypes.byref(entry)) != 0:
        raise DriverSelectionError(f"the loader does not say where {library._name} was loaded from")
    return os.fsdecode(entry.contents.l_name or b"")


def _is_emulated_library(path: str) -> bool:
    """Whether a loaded libcuda is an emulated driver, this installation's or another's."""
    return Path(path).parent.name == "_emulator"


def _same_file(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


name_publicly("aiocuda", globals(), ("DriverInfo",))
