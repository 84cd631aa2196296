"""Runs the site and the workers side by side, until Ctrl-C or until one of them ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.validators import validate_ipv46_address

LOOK_SECONDS = 0.2
GRACE_SECONDS = 40  # more than the workers' own


class Command(BaseCommand):
    help = "Run the site and the workers, stopped together by Ctrl-C or SIGTERM. Exits with 0 when asked to stop."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--processes", type=int, default=1, help="worker processes")
        parser.add_argument("--threads", type=int, default=4, help="threads of a worker process, and of the site")

    def handle(self, *, host: str, port: int, processes: int, threads: int, **options: Any) -> None:
        _check(host, port)
        stop = Stop()
        manage = [sys.executable, sys.argv[0]]
        workers = [*manage, "runworkers", "--processes", str(processes), "--threads", str(threads)]
        children: dict[str, subprocess.Popen[bytes]] = {}
        try:
            children["site"] = _start(site_command(manage, host, port, threads))
            children["workers"] = _start(workers)
            self.stdout.write(f"The shop is at http://{host}:{port}/ - stop it with Ctrl-C.")
            self.stdout.flush()
            ended = stop.wait_for(children)
        finally:
            _end(list(children.values()))
        if ended is not None:
            name, code = ended
            raise CommandError(f"The {name} ended with code {code}, so everything was stopped.", returncode=code if code > 0 else 1)


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def wait_for(self, children: dict[str, subprocess.Popen[bytes]]) -> tuple[str, int] | None:
        """(name, exit code) of the first child that ends by itself; None when asked to stop."""
        while not self.asked:
            for name, child in children.items():
                if (code := child.poll()) is not None:
                    return name, code
            time.sleep(LOOK_SECONDS)
        return None


def site_command(manage: list[str], host: str, port: int, threads: int) -> list[str]:
    """The WSGI server that is installed, else Django's own."""
    if importlib.util.find_spec("granian"):
        return [
            sys.executable,
            "-m",
            "granian",
            "--interface",
            "wsgi",
            "--host",
            host,
            "--port",
            str(port),
            "sampleproject.wsgi:application",
        ]
    if importlib.util.find_spec("gunicorn"):
        bind = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return [sys.executable, "-m", "gunicorn", "--bind", bind, "--threads", str(threads), "--log-level", "warning", "sampleproject.wsgi"]
    return [*manage, "runserver", "--noreload", f"{host}:{port}"]


def _check(host: str, port: int) -> None:
    if not 1 <= port <= 65535:
        raise CommandError(f"--port {port}: use a number from 1 to 65535.")
    if host != "localhost":
        try:
            validate_ipv46_address(host)
        except ValueError:
            raise CommandError(f"--host {host!r} is not an IP address: use 127.0.0.1 for this machine only, 0.0.0.0 for all.") from None


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # A session of its own: a Ctrl-C reaches only us, and each child gets exactly one SIGTERM and not a signal of the terminal as well.
    return subprocess.Popen(command, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # the group: also what it has forked
            child.wait()
