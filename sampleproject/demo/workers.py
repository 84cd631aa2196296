"""The workers of a run: a real `manage.py runworkers` as a child process, stopped by SIGTERM."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

from django.conf import settings

from .events import RunFailed

GRACE_SECONDS = 10
STOP_SECONDS = 30  # the grace, and what handing back may take
SHOWN_LINES = 15


class Workers:
    """`log`: the file their output goes to."""

    def __init__(self, processes: int, threads: int, log: Path) -> None:
        self._log = log
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "runworkers", f"--processes={processes}", f"--threads={threads}"]
        with log.open("wb") as output:
            # A session of its own: a Ctrl-C reaches only us, and the workers get exactly one SIGTERM.
            self._process = subprocess.Popen(
                [*command, f"--grace={GRACE_SECONDS}"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"}, cwd=settings.BASE_DIR,
            )  # fmt: skip

    def check_alive(self) -> None:
        """Raises RunFailed when they have ended by themselves."""
        code = self._process.poll()
        if code is not None:
            raise RunFailed(f"The workers ended by themselves with status {code}. Their last lines:\n{self.last_lines()}")

    def stop(self) -> int:
        """SIGTERM, wait. -> their exit status; those that do not end in time are killed, with all they forked."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-SHOWN_LINES:])


def write_no_core_files() -> None:
    """The demo kills processes on purpose; nobody wants the images of their memory. Inherited by the workers."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
