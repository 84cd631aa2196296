"""Tasks that write what they did, and tasks that kill, block or hang their process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from django.db import connection

from django_tenant_queue import Retry, current_job, task


def write_effect() -> None:
    """One row for this run, in the job's own transaction; and a file at once, for a test that waits for the body to have begun."""
    job = current_job()
    Path(os.environ["PROCESS_NOTES"], f"{job.id}.{job.fence}.{os.getpid()}").touch()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO process_effect (job_id, fence, tenant, seen, pid)"
            " VALUES (%s, %s, %s, current_setting('app.current_tenant_id', true), %s)",
            [job.id, job.fence, job.tenant_id, os.getpid()],
        )


@task
def effect() -> None:
    write_effect()


@task
def noop() -> None:
    """What is left is the queue's own work."""


@task(queue="bulk")
def bulk_effect(seconds: float = 0) -> None:
    time.sleep(seconds)
    write_effect()


@task
def nap(seconds: float) -> None:
    write_effect()
    time.sleep(seconds)


@task
def wait_for_file(path: str) -> None:
    """Runs until the file exists."""
    write_effect()
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.02)


@task(timeout=1)
def too_long() -> None:
    write_effect()
    time.sleep(120)


@task(max_retries=0)
def fail() -> None:
    raise ValueError("this task fails")


@task
def die(how: str) -> None:
    write_effect()
    _DEATHS[how]()


@task
def die_while_neighbours_run(how: str, path: str) -> None:
    """Dies once the file exists, so that a test can have neighbours begun by then."""
    wait_for_file.function(path)
    _DEATHS[how]()


def _segfault() -> None:
    ctypes.string_at(0)


def _recursion() -> None:
    """Without end, in C: the interpreter's own limit does not see it."""
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc, two = ctypes.CDLL(None), (ctypes.c_int * 2)(2, 1)
    sys.setrecursionlimit(10**9)

    @compare
    def again(left: object, right: object) -> int:
        libc.qsort(two, 2, ctypes.sizeof(ctypes.c_int), again)
        return 0

    again(None, None)


_DEATHS = {
    "recursion": _recursion,
    "exit": lambda: os._exit(1),
    "exit0": lambda: os._exit(0),
    "abort": os.abort,
    "segfault": _segfault,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


@task
def fail_once() -> None:
    if current_job().attempt == 1:
        raise Retry(after=0.3)
    write_effect()


if name := os.environ.get("PROCESS_THREAD_AT_IMPORT"):
    threading.Thread(target=time.sleep, args=(60,), name=name, daemon=True).start()


@task(max_retries=0)
def fail_with(password: str, text: str) -> None:
    raise ValueError(f"login with {password} refused")
