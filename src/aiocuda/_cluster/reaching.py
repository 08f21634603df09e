"""Whether somebody answers at Ray's address.

Ray's own connecting tries for a quarter of an hour, and cannot be ended. So it begins when somebody is there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["address_of", "until_somebody_answers"]

# How every client of gRPC begins: HTTP/2's preface, and settings that change nothing. A server answers with its own.
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_TRY_S: Final = 5.0
_BETWEEN_TRIES_S: Final = 0.2


def address_of(options: Mapping[str, Any]) -> str:
    """Return which address counts, that of the options or of the environment; "local" where Ray is to start here."""
    address = options.get("address")
    if address is None or address == "auto":  # Ray's own rule
        address = os.environ.get("RAY_ADDRESS") or address
    return "local" if address is None else str(address)


def until_somebody_answers(address: str, is_given_up: Callable[[], bool]) -> None:
    """Wait until somebody answers at an address, or nobody wants to know. *Blocks*.

    Addresses that are not a host and a port are Ray's to find out about.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        return
    while not is_given_up() and not _answers(host.strip("[]"), int(port)):
        time.sleep(_BETWEEN_TRIES_S)


def _answers(host: str, port: int) -> bool:
    """Whether there is an answer: an end, too, which is that of a server that wants TLS."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), _TRY_S) as connection:
        connection.sendall(_HELLO)
        connection.recv(1)
        return True
    return False
