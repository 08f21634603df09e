"""A client of pyright's language server, as editors are: it opens one text, and asks about places in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class LanguageServer:
    """The server, for one text in a folder."""

    def __init__(self, folder: Path, text: str) -> None:
        self._text, self._number = text, 0
        self._uri = (folder / "edited.py").as_uri()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "pyright.langserver", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        workspace = {"uri": folder.as_uri(), "name": "edited"}
        self._ask("initialize", processId=None, rootUri=folder.as_uri(), workspaceFolders=[workspace], capabilities={})
        self._say("initialized")
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": text}
        self._say("textDocument/didOpen", textDocument=document)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.kill()
        self._server.communicate()

    def completions(self, after: str) -> set[str]:
        """What is offered behind a part of the text."""
        answer = self._ask("textDocument/completion", **self._place(after))
        return {each["label"] for each in answer["items"]}

    def parameters(self, after: str) -> list[str]:
        """The parameters that are shown behind the bracket of a call."""
        (signature,) = self._ask("textDocument/signatureHelp", **self._place(after))["signatures"]
        return [each["label"] for each in signature["parameters"]]

    def _place(self, after: str) -> dict[str, Any]:
        before = self._text[: self._text.index(after) + len(after)].split("\n")
        position = {"line": len(before) - 1, "character": len(before[-1])}
        return {"textDocument": {"uri": self._uri}, "position": position}

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._send(id=self._number, method=method, params=parameters)
        while "method" in (message := self._receive()) or message["id"] != self._number:
            if "id" in message and "method" in message:  # the server asks, too: for settings, which it has in a file
                asked = message.get("params", {}).get("items")
                self._send(id=message["id"], result=None if asked is None else [None] * len(asked))
        return message["result"]

    def _say(self, method: str, **parameters: Any) -> None:
        self._send(method=method, params=parameters)

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._server.stdin is not None
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._server.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        length = 0
        while (line := self._server.stdout.readline().strip()) or not length:
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
            elif not line and self._server.poll() is not None:
                raise EOFError("pyright's language server has ended")
        message: dict[str, Any] = json.loads(self._server.stdout.read(length))
        return message
