"""A tree of real worker processes, and what a test may ask of it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MARK = "PROCESS_TREE"


@dataclass(frozen=True, slots=True)
class Begun:
    """A body that has begun, as its task noted it."""

    job_id: UUID
    fence: int
    pid: int


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a tree, as /proc shows it: supervisor, zygote, worker, quarantine, keepers, lease keepe (names have 15 characters)."""

    pid: int
    parent: int
    role: str


class Tree:
    """What these arguments of `python -m` start. `stop()` leaves no process behind."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, notes: Path) -> None:
        self.arguments = arguments
        self.mark = secrets.token_hex(8)
        self.log, self.notes = log, notes
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT, env={**os.environ, **environment, MARK: self.mark}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def processes(self, role: str | None = None) -> list[Process]:
        """Living processes of this tree, orphans included."""
        found = [process for entry in Path("/proc").iterdir() if entry.name.isdigit() and (process := self._process(entry))]
        return [process for process in found if role is None or process.role == role]

    def one(self, role: str) -> Process:
        """The only process of that role, waited for."""
        return eventually(lambda: self.processes(role) if len(self.processes(role)) == 1 else [], within=20, what=f"one {role}")[0]

    def ready(self, workers: int) -> Tree:
        """Wait until so many workers have come up."""
        eventually(lambda: len(self.processes("worker")) == workers, within=30, what=f"{workers} workers; log:\n{self.text()}")
        return self

    def begun(self, job_id: UUID | None = None) -> list[Begun]:
        """Bodies that have begun, in order of job and fence."""
        parts = [note.name.split(".") for note in self.notes.iterdir()]
        runs = [Begun(UUID(job), int(fence), int(pid)) for job, fence, pid in parts]
        return sorted((run for run in runs if job_id in (None, run.job_id)), key=lambda run: (run.job_id, run.fence))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = 10) -> int:
        """The exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the tree has not ended within {within} s; log:\n{self.text()}") from None

    def text(self) -> str:
        return self.log.read_text()

    def stop(self) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        self.process.wait(10)
        eventually(lambda: not self.processes(), what="no process is left")

    def _process(self, entry: Path) -> Process | None:
        try:
            if f"{MARK}={self.mark}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                return None
            name, fields = (entry / "stat").read_text().rsplit(") ", 1)
            state, parent = fields.split()[:2]
        except OSError:
            return None
        return None if state == "Z" else Process(int(entry.name), int(parent), name.partition("(")[2].removeprefix("dtq:"))


def environment(database: Mapping[str, Any], redis_url: str, tenant_queue: Mapping[str, Any], secret_key: str) -> dict[str, str]:
    """What tests.process.project.settings reads."""
    plain = {name: database[name] for name in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")}
    return {
        "DJANGO_SETTINGS_MODULE": "tests.process.project.settings",
        "PYTHONPATH": str(ROOT),
        "PROCESS_SECRET_KEY": secret_key,
        "PROCESS_DATABASE": json.dumps(plain, default=str),
        "PROCESS_REDIS": redis_url,
        "PROCESS_TENANT_QUEUE": json.dumps(tenant_queue),
    }
