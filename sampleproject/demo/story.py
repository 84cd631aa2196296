"""Both runs, one after the other: each a child process with the settings of its line, whose events are passed on to a view."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.conf import settings

from . import interruption
from .events import RunFailed, RunOptions

STOP_SECONDS = 45  # more than a run needs to stop its workers
LINES = ("fifo", "fair")


class View(Protocol):
    """Shows what happens."""

    def begin(self, line: str) -> None: ...
    def step(self, text: str) -> None: ...
    def progress(self, facts: dict[str, Any]) -> None: ...


@contextmanager
def private_directory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="shop-demo-") as directory:
        yield directory


def environment_of(line: str, directory: str) -> dict[str, str]:
    """The settings of a run: its own namespace in Redis, its own files; "fifo" has one lane and one queue for everybody."""
    return os.environ | {
        "SHOP_ONE_LINE": str(line == "fifo"),
        "SHOP_PREPARED_STATEMENTS": "True",
        "TENANT_QUEUE_NAMESPACE": f"demo-{line}-{secrets.token_hex(3)}",
        "MEDIA_ROOT": f"{directory}/media",
        "EMAIL_FILE_PATH": f"{directory}/mail",
        "EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend",
    }


def run(options: RunOptions, view: View) -> dict[str, Any]:
    """One run. -> its result event. Raises RunFailed. An interrupt stops the run, with its workers, before it goes on."""
    view.begin(options.line)
    command = [sys.executable, "-m", "sampleproject.demo", options.to_json()]
    # A session of its own: a Ctrl-C reaches only us, and we tell the run once.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=settings.BASE_DIR,
        env=environment_of(options.line, options.directory),
    )  # fmt: skip
    try:
        result = _follow(process, view)
        status = process.wait(STOP_SECONDS)
    finally:
        _end(process)
    if result is None or status != 0:
        raise RunFailed(f"The {options.line} run ended with status {status} and without a result.")
    return result


def _follow(process: subprocess.Popen[str], view: View) -> dict[str, Any] | None:
    assert process.stdout is not None
    result = None
    for line in process.stdout:
        interruption.check()
        facts = json.loads(line)
        event = facts.pop("event")
        if event == "step":
            view.step(facts["text"])
        elif event == "progress":
            view.progress(facts)
        elif event == "failed":
            raise RunFailed(facts["sentence"])
        else:
            result = facts
    return result


def _end(process: subprocess.Popen[str]) -> None:
    """Nothing of the run is left afterwards."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
