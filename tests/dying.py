"""Dying at a failpoint: a child of this process runs the code and is killed there, as `kill -9` would."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

from django.db import connections

from django_tenant_queue import failpoints

_inherited: list[Any] = []


def killed_at(place: str, work: Callable[[], object], **options: Any) -> None:
    """Run `work` in a fork that is killed when it passes `place`; fails when it did not get there."""
    pid = os.fork()
    if pid == 0:
        _run_and_exit(place, work, options)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"failpoint {place} did not fire"
    assert os.WTERMSIG(status) == signal.SIGKILL


def _run_and_exit(place: str, work: Callable[[], object], options: dict[str, Any]) -> None:
    try:
        _leave_connections_to_the_parent()
        with failpoints.active(place, "exit9", **options):
            work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _leave_connections_to_the_parent() -> None:
    for wrapper in connections.all(initialized_only=True):
        _inherited.append(wrapper.connection)  # kept, for closing it would end the parent's session
        wrapper.connection = None
