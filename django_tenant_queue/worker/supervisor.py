"""The supervisor: takes signals, keeps a zygote alive, says how it ended. Without Django and without stores.

Run as `python -m django_tenant_queue.worker.supervisor OPTIONS` by the command `runworkers`, in its place.

| signal | means |
|---|---|
| SIGTERM, SIGINT | drain: claim nothing more, running jobs may end within the grace; a second one: stop, hand back at once |
| SIGHUP | drain; never more, however often |
| SIGQUIT | stop, hand back at once |

Exit codes: 0 drained; 1 could not start; 3 stopped, and jobs that were still running were handed back (they run again elsewhere).
Handlers write one byte to a pipe and nothing else. If the zygote dies its workers drain by themselves, and a new one starts at once,
then with growing pauses. If we die the zygote sees the end of the control socket, and the tree drains.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

from .linux import adopt_orphans, name_process
from .options import CANNOT_START, DRAINED, HANDED_BACK, WorkerOptions
from .seats import Seat

DRAIN_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ORPHANS_SECONDS = 5.0  # beyond the grace, for workers whose zygote died while the tree was draining

logger = logging.getLogger("django_tenant_queue")


class Supervisor:
    """`run()` returns the exit code."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._seat = Seat("zygote")
        self._started_at = 0.0
        self._was_ever_ready = False
        self._told = ""  # "", "drain" or "stop"
        self._told_at = 0.0
        self._wake, self._wake_end = os.pipe()
        for end in (self._wake, self._wake_end):
            os.set_blocking(end, False)

    def run(self) -> int:
        name_process("supervisor")
        adopt_orphans()
        self._take_signals()
        while True:
            if self._zygote is None and self._seat.is_due(time.monotonic()):
                if self._told:
                    return self._wait_for_orphans()
                self._start()
            self._wait()
            code = self._ended()
            if code is not None:
                return code

    # -- signals

    def _take_signals(self) -> None:
        for number in (*DRAIN_SIGNALS, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)

    def _heed(self) -> None:
        """Act on the signals that came, one byte each."""
        with suppress(BlockingIOError):
            for number in os.read(self._wake, 4096):
                if number in DRAIN_SIGNALS:
                    self._tell("stop" if self._told else "drain")
                elif number == signal.SIGHUP:
                    self._tell("drain")
                elif number == signal.SIGQUIT:
                    self._tell("stop")

    def _tell(self, word: str) -> None:
        if self._told == "stop" or self._told == word:
            return
        self._told, self._told_at = word, self._told_at or time.monotonic()
        logger.info("supervisor: %s", "draining" if word == "drain" else "stopping, running jobs are handed back")
        self._pass_on()

    def _pass_on(self) -> None:
        if self._control is not None and self._told:
            with suppress(OSError):
                self._control.send(self._told.encode(), socket.MSG_DONTWAIT)

    # -- the zygote

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-P", "-m", "django_tenant_queue.worker.zygote"]  # type: ignore[attr-defined]
        with theirs:
            # A session of its own: Ctrl-C in a terminal reaches us alone, and we pass on what it means.
            self._zygote = subprocess.Popen(
                [*command, self._options.to_json(), str(theirs.fileno())], pass_fds=[theirs.fileno()], start_new_session=True
            )
        self._control, self._started_at = ours, time.monotonic()
        self._seat.taken(self._zygote.pid)

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._control is not None:
            poll.register(self._control, select.POLLIN)
        due = self._seat.due_in(time.monotonic())
        for descriptor, _ in poll.poll(None if due is None else due * 1000):
            if descriptor == self._wake:
                self._heed()
            else:
                self._listen()

    def _listen(self) -> None:
        """What the zygote says; the end of it comes with its death, seen by its exit status."""
        assert self._control is not None
        try:
            word = self._control.recv(4096)
        except OSError:
            word = b""
        if word == b"ready":
            self._was_ever_ready = True
            self._pass_on()  # an order that came before it could listen
        elif not word:
            self._control.close()
            self._control = None

    def _ended(self) -> int | None:
        """Reap. -> the exit code of the tree when the zygote has ended in order."""
        self._reap_orphans()
        if self._zygote is None or self._zygote.poll() is None:
            return None
        code, now = self._zygote.returncode, time.monotonic()
        self._zygote, self._control = None, None
        self._seat.died(now, now - self._started_at)
        if code in (DRAINED, HANDED_BACK):
            return code
        if not self._was_ever_ready:
            logger.error("supervisor: the project could not be loaded (the zygote ended with %s); see the lines above", code)
            return CANNOT_START
        logger.error("supervisor: the zygote has died (%s)%s", code, "" if self._told else "; its workers drain, a new one is started")
        return None

    # -- children of a dead zygote

    def _reap_orphans(self) -> None:
        """They are ours since their parent died. The zygote's own status is left to Popen."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or (self._zygote is not None and found.si_pid == self._zygote.pid):
                return
            with suppress(ChildProcessError):
                os.waitpid(found.si_pid, 0)

    def _wait_for_orphans(self) -> int:
        end = self._told_at + (self._options.grace_seconds if self._told == "drain" else 0) + ORPHANS_SECONDS
        while time.monotonic() < end:
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            time.sleep(0.05)
        return HANDED_BACK


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    return Supervisor(WorkerOptions.from_json(arguments[0])).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
