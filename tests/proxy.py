"""A TCP proxy between our code and a real server, that makes the network fail on demand. For Redis and Postgres alike.

    with Proxy(("127.0.0.1", valkey.port)) as proxy:
        proxy.swallow_replies(to=b"EVALSHA")
        ...
        assert proxy.fired["swallowed reply"] == 3

`fired` counts what was done to connections; a test of a fault asserts on it. `heal()` ends every fault for new connections.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a random loopback port. Every control may be used at any time, from any thread."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.fired: Counter[str] = Counter()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.heal()

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset_all()

    # -- controls

    def heal(self) -> None:
        """No faults from now on. Connections that went silent stay so: their streams have gaps."""
        self.latency_seconds = 0.0
        self._refusing = self._black = False
        self._swallow: bytes | None = None
        self._cuts: list[_Cut] = []
        self._bytes_left: dict[str, int] = {}

    def refuse(self) -> None:
        """Reset every new connection. fired["refused"]"""
        self._refusing = True

    def reset_all(self) -> None:
        """Reset (RST) the connections that are open. fired["reset"]"""
        for link in self._open_links():
            link.tell("reset")

    def black_hole(self) -> None:
        """Accept, and let nothing through, in old and new connections. fired["black hole"] counts pieces swallowed."""
        self._black = True

    def drop_silently(self) -> None:
        """The open connections go dead without a word, as after an idle NAT entry is dropped; new ones work. fired["silenced"]"""
        for link in self._open_links():
            link.silent = True
            self.count("silenced")

    def swallow_replies(self, to: bytes = b"") -> None:
        """Requests arrive; from the first request that contains `to` on, a connection's replies are dropped. fired["swallowed reply"]"""
        self._swallow = to

    def cut_after_bytes(self, count: int, *, direction: str) -> None:
        """Let `count` more bytes through ("up" to the server, "down" to the client), in all, then reset. fired["cut"]"""
        self._bytes_left[direction] = count

    def cut_at_request(self, containing: bytes, *, delivered: bool, times: int = 1) -> None:
        """Reset the connection at a request: `delivered`: the server gets it and has answered, the answer is lost;
        otherwise it never arrives. fired["cut"]"""
        self._cuts.append(_Cut(containing, delivered, times))

    def count(self, what: str) -> None:
        with self._lock:
            self.fired[what] += 1

    # -- inside

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                self.count("refused")
                _reset(client)
                continue
            self.count("accepted")
            link = _Link(self, client)
            with self._lock:
                self._links.add(link)
            threading.Thread(target=link.run, daemon=True).start()

    def _open_links(self) -> list[_Link]:
        with self._lock:
            return list(self._links)

    def forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def delay(self) -> None:
        if self.latency_seconds:
            self.count("delayed")
            self._closing.wait(self.latency_seconds)

    def is_black(self) -> bool:
        return self._black

    def swallows(self, request: bytes) -> bool:
        return self._swallow is not None and self._swallow in request

    def cut_for(self, request: bytes) -> _Cut | None:
        with self._lock:
            for cut in self._cuts:
                if cut.times > 0 and cut.containing in request:
                    cut.times -= 1
                    return cut
        return None

    def allowance(self, direction: str, wanted: int) -> int:
        with self._lock:
            if direction not in self._bytes_left:
                return wanted
            granted = min(wanted, self._bytes_left[direction])
            self._bytes_left[direction] -= granted
            return granted


class _Cut:
    def __init__(self, containing: bytes, delivered: bool, times: int) -> None:
        self.containing, self.delivered, self.times = containing, delivered, times


class _Broken(Exception):
    """The link is to be reset."""


class _Link:
    """One client's connection and ours to the server, pumped by one thread."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy, self._client = proxy, client
        self._bell, self._bell_end = socket.socketpair()
        self.silent = False
        self._deaf = False  # replies are dropped
        self._cut_at_reply = False

    def tell(self, word: str) -> None:
        self._bell.send(word.encode())

    def run(self) -> None:
        server = socket.socket()
        try:
            server.connect(self._proxy.target)
            self._pump(server)
        except _Broken:
            _reset(self._client)
        except OSError:
            pass
        finally:
            for sock in (self._client, server, self._bell, self._bell_end):
                sock.close()
            self._proxy.forget(self)

    def _pump(self, server: socket.socket) -> None:
        ways: dict[socket.socket, Callable[[bytes], None]] = {
            self._client: lambda data: self._up(server, data),
            server: lambda data: self._down(data),
        }
        while True:
            readable, _, _ = select.select([*ways, self._bell_end], [], [])
            if self._bell_end in readable:
                self._proxy.count("reset")
                raise _Broken
            for sock in readable:
                data = sock.recv(65536)
                if data:
                    ways[sock](data)
                elif sock is self._client or not (self.silent or self._proxy.is_black()):
                    return
                else:
                    del ways[sock]  # the client is not told that the server has gone

    def _up(self, server: socket.socket, data: bytes) -> None:
        if self._swallowed():
            return
        self._proxy.delay()
        cut = self._proxy.cut_for(data)
        if cut is not None and not cut.delivered:
            self._broken_by_cut()
        self._cut_at_reply = self._cut_at_reply or cut is not None
        self._deaf = self._deaf or self._proxy.swallows(data)
        self._send(server, "up", data)

    def _down(self, data: bytes) -> None:
        if self._cut_at_reply:
            self._broken_by_cut()
        if self._deaf:
            self._proxy.count("swallowed reply")
            return
        if self._swallowed():
            return
        self._proxy.delay()
        self._send(self._client, "down", data)

    def _swallowed(self) -> bool:
        if not (self.silent or self._proxy.is_black()):
            return False
        self._proxy.count("black hole" if self._proxy.is_black() else "swallowed in silence")
        return True

    def _send(self, sock: socket.socket, direction: str, data: bytes) -> None:
        granted = self._proxy.allowance(direction, len(data))
        sock.sendall(data[:granted])
        if granted < len(data):
            self._broken_by_cut()

    def _broken_by_cut(self) -> None:
        self._proxy.count("cut")
        raise _Broken


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()
