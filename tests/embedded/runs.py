"""A run of `python -m embedded run` under observation: its output, its servers, its directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import eventually

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SERVED = {"REDIS_URL", "DATABASE_URL", "ADMIN_DATABASE_URL"}
VALKEY_ONLY = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}  # named, so not started: what needs no Postgres is quicker
WAIT_FOR_SIGNAL = (
    "import signal, sys; print('ready', flush=True); got = signal.sigwait({signal.SIGINT, signal.SIGTERM}); sys.exit(40 + got)"
)
WAITING = [
    sys.executable,
    "-c",
    "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})\n" + WAIT_FOR_SIGNAL,
]

TAKE_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Run:
    """Started in a session of its own, so without a terminal, or with `terminal` (a file number) as its own."""

    def __init__(
        self,
        run_directory: Path,
        command: Sequence[str],
        *options: str,
        checkout: Path = CHECKOUT,
        environment: dict[str, str] | None = None,
        python: str = sys.executable,
        user: int | None = None,
        terminal: int | None = None,
    ) -> None:
        self.directory = run_directory
        arguments = [python, "-m", "embedded", "run", "--no-fsync", "--run-dir", str(run_directory), *options, "--", *command]
        if terminal is not None:
            arguments = [sys.executable, "-c", TAKE_TERMINAL, *arguments]
        inherited = {name: value for name, value in os.environ.items() if name not in SERVED}
        identity: dict[str, object] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen(
            arguments,
            cwd=checkout,
            env=inherited | (environment or {}),
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.PIPE if terminal is None else terminal,
            text=True,
            start_new_session=True,
            **identity,  # type: ignore[call-overload]
        )

    def wait_until_ready(self) -> list[int]:
        """When the command has printed its line: the servers' process numbers."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", line + self.finish()[1]
        return self.server_pids()

    def server_pids(self) -> list[int]:
        return [int(line) for path in self.directory.glob("servers-*/pids") for line in path.read_text().splitlines()]

    def finish(self) -> tuple[str, str]:
        return self.process.communicate(timeout=60)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()  # not kill: what a killed run leaves is for the next in the same directory, and there may be none
        self.process.communicate(timeout=60)


def running(pid: int) -> bool:
    """Not gone, and not merely waiting to be reaped by process 1."""
    try:
        os.kill(pid, 0)
        shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    except ProcessLookupError:
        return False
    return bool(shown.strip()) and not shown.strip().startswith("Z")


def all_gone(pids: Sequence[int]) -> None:
    eventually(lambda: not [pid for pid in pids if running(pid)], what=f"the processes {pids} have ended")
