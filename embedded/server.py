"""One server process: started, waited for, stopped, killed, started again on the same port with the same data."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from embedded.errors import EmbeddedError
from embedded.place import Place

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)  # below the ephemeral ports: no client's own end can sit on ours while we are down
START_SECONDS = 60
STOP_SECONDS = 30
LAUNCHER = Path(__file__).with_name("launch.py")


class Server:
    """Start it from the main thread: on Linux the server is signalled when the thread that started it ends."""

    name: ClassVar[str]
    port_option: ClassVar[str]
    death_signal: ClassVar[signal.Signals]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, *, port: int | None = None, place: Place | None = None) -> None:
        self.port = port or 0
        self._port_is_fixed = port is not None
        self._place = place
        self._owns_place = place is None
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._was_up = False

    # What each kind of server says about itself

    def _prepare(self, place: Place) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _first_up(self) -> None:
        """Once, when the server answers for the first time."""

    # What all can do

    def start(self) -> Self:
        """Returns when the server answers. Raises EmbeddedError with the last log lines when it does not."""
        if self.running:
            return self
        if self._directory is None:
            self._move_in()
        deadline = time.monotonic() + START_SECONDS
        while not self._comes_up(deadline):
            # Somebody took the port since we looked, or (after a kill) a child of ours still holds shared memory.
            if "in use" not in self.last_log_lines() or time.monotonic() > deadline:
                raise EmbeddedError(f"{self.name} did not start; its last log lines:\n{self.last_log_lines()}")
            if self._port_is_fixed and not self._was_up:
                raise self._busy()
            time.sleep(0.1)
        if not self._was_up:
            self._first_up()
            self._was_up = True
        return self

    def stop(self) -> None:
        """A clean shutdown; the data stays for the next `start`."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """SIGKILL: what a lost machine looks like to everybody else."""
        if self.running:
            os.kill(self.pid, signal.SIGSTOP)  # so that it has no more children than we see
            for pid in [*children_of(self.pid), self.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait_or_kill()

    def restart(self) -> Self:
        """Stop and start, on the same port with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop without saving anything, and remove the data."""
        try:
            self._end(self.death_signal)
        finally:
            if self._owns_place and self._place is not None:
                self._place.close()
                self._place, self._directory, self._was_up = None, None, False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise EmbeddedError(f"{self.name} has not been started.")
        return self._process.pid

    @property
    def directory(self) -> Path:
        if self._directory is None:
            raise EmbeddedError(f"{self.name} has not been started.")
        return self._directory

    def last_log_lines(self, count: int = 12) -> str:
        log = self.directory / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else ""

    def _move_in(self) -> None:
        if self._port_is_fixed and not port_is_free(self.port):
            raise self._busy()
        if self._place is None:
            self._place = Place.open()
            weakref.finalize(self, self._place.close)
        self._directory = self._place.directory(self.name.lower())
        self._prepare(self._place)

    def _comes_up(self, deadline: float) -> bool:
        if not self._port_is_fixed and not self._was_up:
            self.port = free_port()
        self._spawn()
        while self.running and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _spawn(self) -> None:
        assert self._place is not None
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                launched(self._command(), self.death_signal, self._place),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=server_environment(),
                start_new_session=True,  # Ctrl-C on the terminal reaches the command, and only then do we stop
            )
        self._place.note_process(self.pid)

    def _end(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)
            self._wait_or_kill()

    def _wait_or_kill(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _busy(self) -> EmbeddedError:
        return EmbeddedError(
            f"Port {self.port} on {HOST} is in use by another program, so {self.name} cannot have it: "
            f"name another with {self.port_option}, or leave the option out and a free one is taken."
        )


def launched(command: list[str], death_signal: signal.Signals, place: Place | None = None, group: str = "same") -> list[str]:
    """The command behind the launcher: as the place's user when there is a place, and bound to this process's life."""
    identity = place.identity if place else None
    who = [str(identity.uid), str(identity.gid)] if identity else ["-", "-"]
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(int(death_signal)), *who, group, *command]


def server_environment() -> dict[str, str]:
    """Nothing of ours: PG* and locale variables change what a server does."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    for _ in range(200):
        port = random.choice(PORTS)
        if port_is_free(port):
            return port
    raise EmbeddedError(f"No free port between {PORTS.start} and {PORTS.stop} on {HOST}: name one with --redis-port or --postgres-port.")


def children_of(pid: int) -> list[int]:
    """Direct children (Linux; elsewhere none: Postgres's children leave by themselves when their parent is gone)."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found
