"""The two sides of a fork: what must be so before it, and what a child does first and last."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn

from .. import failpoints, logs
from .options import CANNOT_START
from .slots import Entry


def refuse_threads() -> None:
    """End this process when it has threads: a fork copies only the one that calls it, and locks the others hold stay locked for ever."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    if others:
        print(
            f"runworkers: loading the project has started threads ({', '.join(others)}), and forking a process with threads can hang it. "
            "Start them in a receiver of django_tenant_queue.signals.worker_started instead of at import.",
            file=sys.stderr,
        )
        os._exit(CANNOT_START)


def be_child(role: str, body: Callable[[], int], entry: Entry | None, not_ours: Iterable[int]) -> NoReturn:
    """Close the descriptors that only the zygote may have, run `body`, exit with what it returns. An error of ours is an exit code, too."""
    code = CANNOT_START
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if entry is not None:
            failpoints.hit("S1")
            entry.live(os.getpid())
        for descriptor in not_ours:
            if descriptor >= 0:
                os.close(descriptor)
        code = body()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else CANNOT_START
    except BaseException as error:
        logs.process_broken(role, error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)  # hard: threads may be running, and what the zygote would do at exit is not ours to do
