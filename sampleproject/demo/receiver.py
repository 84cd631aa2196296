"""A small real HTTP server that takes webhooks and remembers which jobs delivered them, and for whom."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


class Receiver:
    """Listens on a free port of the loopback while the `with` block lasts. `taken`: (job id, workspace) of each request, in order."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self._lock = Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hooks"

    def __enter__(self) -> Receiver:
        Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, job_id: str, workspace: str) -> None:
        with self._lock:
            self.taken.append((job_id, workspace))


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            receiver.take(self.headers.get("Idempotency-Key", ""), json.loads(content)["workspace"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Quiet: the demo says what came."""

    return Handler
