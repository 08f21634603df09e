"""The built pages, and a server for them."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing: what fails is seen by the browser."""


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the pages, which `make check-site` has built and names."""
    if "AIOCUDA_SITE" not in os.environ:
        pytest.skip("make check-site builds the pages, and looks at them")
    return Path(os.environ["AIOCUDA_SITE"]).resolve()


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the pages are served."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
