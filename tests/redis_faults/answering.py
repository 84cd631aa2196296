"""A server of the tests' own that speaks just enough RESP to answer every script with one given error."""

from __future__ import annotations

import socketserver
import threading
from collections import Counter
from types import TracebackType
from typing import BinaryIO, Self


class AnsweringServer:
    """Answers EVALSHA and EVAL with `error` ("LOADING Redis is loading ..."), everything else with OK. `seen` counts commands by name.

    `recovers_after`: from then on scripts are answered with the integer 1."""

    def __init__(self, error: str, *, recovers_after: int | None = None) -> None:
        self.error, self.recovers_after = error, recovers_after
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Self:
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while (command := _read_command(self.rfile)) is not None:  # type: ignore[arg-type]
                    self.wfile.write(outer.answer(command))

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.allow_reuse_address = True
        self._server.server_bind()
        self._server.server_activate()
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, command: list[bytes]) -> bytes:
        name = command[0].decode().upper()
        self.seen[name] += 1
        if name not in ("EVALSHA", "EVAL"):
            return b"+PONG\r\n" if name == "PING" else b"+OK\r\n"
        if self.recovers_after is not None and self.seen[name] > self.recovers_after:
            return b":1\r\n"
        return b"-" + self.error.encode() + b"\r\n"


def _read_command(stream: BinaryIO) -> list[bytes] | None:
    try:
        header = stream.readline()
        if not header:
            return None
        return [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(header[1:]))]
    except (OSError, ValueError):
        return None
