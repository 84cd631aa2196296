"""Runs one command with servers: those named in the environment, or private ones that end with it.

Order: servers up, command started, command ended (its left-over children too), servers stopped, directory removed; also after a signal.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from embedded.leftovers import adopt_orphans, end_leftovers
from embedded.place import Place
from embedded.postgres import Postgres
from embedded.server import Server, launched
from embedded.valkey import Valkey

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Options:
    redis_port: int | None = None
    redis_server: Path | None = None
    postgres_port: int | None = None
    postgres_programs: Path | None = None
    fsync: bool = True
    run_directory: Path | None = None


class Interrupted(BaseException):
    """A signal came before the command was started."""

    def __init__(self, number: int) -> None:
        self.number = number


def run(command: list[str], options: Options) -> int:
    """The command's exit status; 128 + n when signal n ended it. Raises EmbeddedError when a server cannot be had."""
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # a signal in the middle of our own first statements is no news
    wanted = {name for name in ("REDIS_URL", "DATABASE_URL") if not os.environ.get(name)}
    servers: list[Server] = []
    _hold_signals()
    place = Place.open(options.run_directory) if wanted else None
    try:
        _release_signals()
        return _run_command(command, os.environ | _start_servers(servers, place, options, wanted))
    except Interrupted as interrupted:
        return 128 + interrupted.number
    finally:
        _hold_signals()  # nothing but SIGKILL may cut the cleaning short, and then the servers die with us
        for server in servers:
            server.close()
        if place:
            place.close()


def _start_servers(servers: list[Server], place: Place | None, options: Options, wanted: set[str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    if "REDIS_URL" in wanted:
        valkey = Valkey(port=options.redis_port, place=place, program=options.redis_server)
        servers.append(valkey)
        environment["REDIS_URL"] = valkey.start().url
    if "DATABASE_URL" in wanted:
        postgres = Postgres(port=options.postgres_port, place=place, programs=options.postgres_programs, fsync=options.fsync)
        servers.append(postgres)
        environment |= {"DATABASE_URL": postgres.start().url, "ADMIN_DATABASE_URL": postgres.admin_url}
    if servers:
        print("Private servers: " + ", ".join(f"{s.name} on port {s.port}" for s in servers), file=sys.stderr)
    return environment


def _run_command(command: list[str], environment: dict[str, str]) -> int:
    """Ctrl-C on a terminal reaches the command by itself; elsewhere it has a process group of its own and gets a signal once, from us."""
    at_terminal = _in_foreground()
    servers = adopt_orphans()
    _hold_signals()
    signal.signal(signal.SIGCHLD, _nothing)  # one that is ignored is not delivered everywhere
    process = subprocess.Popen(launched(command, signal.SIGTERM, group="same" if at_terminal else "own"), env=environment)
    while process.poll() is None:
        number, from_kernel = _next_signal()
        if number in FORWARDED and not (at_terminal and from_kernel):
            process.send_signal(number)
    end_leftovers(servers, group=None if at_terminal else process.pid)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _hold_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})


def _release_signals() -> None:
    for number in FORWARDED:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # under nohup it stays ignored
            signal.signal(number, _interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*FORWARDED, signal.SIGCHLD})


def _next_signal() -> tuple[int, bool]:
    """The signal, and whether the kernel (the terminal) sent it rather than a process."""
    waited = {*FORWARDED, signal.SIGCHLD}
    if sys.platform == "darwin":
        return signal.sigwait(waited), True
    received = signal.sigwaitinfo(waited)
    return received.si_signo, received.si_code > 0


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted(number)


def _nothing(number: int, frame: object) -> None: ...
