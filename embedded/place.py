"""The private directory of one run below `.run/`, held by a file lock, and the cleaning of those whose holder died.

A lock dies with its holder, so a reused process number cannot make a dead run look alive. Every run has a directory of its own:
two runs in one checkout do not meet. Order in `open`: under the lock of `.run/` itself clean, make, lock; so no start can clean
a directory that another one has just made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embedded.errors import EmbeddedError
from embedded.identity import Identity
from embedded.wheels import Programs

RUN_DIRECTORY = Path(__file__).resolve().parent.parent / ".run"
PREFIX = "servers-"  # others keep things of theirs in `.run/` too
OUTSIDE_PREFIX = "django-tenant-queue-"


class Place:
    """Directories are 0700 and belong to the user the servers run as. Nothing that existed before is changed."""

    def __init__(self, root: Path, lock: int, identity: Identity | None) -> None:
        self.root = root
        self.identity = identity
        self._lock = lock
        self._pid = os.getpid()
        self._open = True
        self._copies: dict[str, Programs] = {}
        self._base = root if identity is None or identity.can_use(root) else self._outside(identity)

    @classmethod
    def open(cls, run_directory: Path | None = None) -> Place:
        """Raises EmbeddedError when `.run/` cannot be written."""
        directory = run_directory or RUN_DIRECTORY
        identity = Identity.for_servers()
        with _writable(directory), _locked(directory / "lock"):
            _clean(directory)
            root = directory / f"{PREFIX}{secrets.token_hex(4)}"
            root.mkdir(mode=0o711)
            root.chmod(0o711)  # whatever the umask: the servers' user passes through, and may not list
            lock = _take(root / "lock")
            assert lock is not None
        return cls(root, lock, identity)

    def directory(self, name: str) -> Path:
        """A fresh 0700 directory for a server."""
        path = self._base / name
        path.mkdir(mode=0o700)
        if self.identity:
            self.identity.own(path)
        return path

    def within_reach(self, programs: Programs) -> Programs:
        """The programs, or a private copy of them when the servers' user cannot reach them."""
        if self.identity is None or self.identity.can_use(programs.directory):
            return programs
        if not programs.parts:
            raise EmbeddedError(f"The servers' user (uid {self.identity.uid}) cannot reach {programs.directory}: name a public directory.")
        if programs.folder not in self._copies:
            self._copies[programs.folder] = programs.copied_to(self._outside_base())
        return self._copies[programs.folder]

    def note_process(self, pid: int) -> None:
        """So that the next start finds a server that outlived a killed run (where there is no parent-death signal)."""
        with (self.root / "pids").open("a") as pids:
            pids.write(f"{pid}\n")

    def close(self) -> None:
        if self._open and os.getpid() == self._pid:  # a fork of ours that ends normally must not remove what we still use
            self._open = False
            _remove(self.root)
            os.close(self._lock)

    def _outside_base(self) -> Path:
        if self._base == self.root:
            assert self.identity is not None
            return self._outside(self.identity)
        return self._base

    def _outside(self, identity: Identity) -> Path:
        """Below the system's temporary directory. Recorded before it is made, so that a kill in between leaves nothing unknown."""
        temporary = next((p for p in _temporary_directories() if identity.can_use(p)), None)
        if temporary is None:
            raise EmbeddedError(
                f"No temporary directory can be reached by the servers' user (uid {identity.uid}): set TMPDIR to one that can."
            )
        outside = temporary / f"{OUTSIDE_PREFIX}{secrets.token_hex(6)}"
        with (self.root / "outside").open("a") as record:
            record.write(f"{outside}\n")
        outside.mkdir(mode=0o700)
        identity.own(outside)
        return outside


def clean(directory: Path) -> int:
    """Removes what runs that were killed left below `directory`; returns how many. Live runs are left alone."""
    if not directory.is_dir():
        return 0
    with _writable(directory), _locked(directory / "lock"):
        return _clean(directory)


def _clean(directory: Path) -> int:
    removed = 0
    for root in sorted(directory.glob(f"{PREFIX}*")):
        with contextlib.suppress(PermissionError, FileNotFoundError):  # another user's; or its run has just removed it
            lock = _take(root / "lock")
            if lock is not None:
                _end_survivors(root)
                _remove(root)
                os.close(lock)
                removed += 1
    return removed


def _remove(root: Path) -> None:
    for line in _lines(root / "outside"):
        outside = Path(line)
        if outside.name.startswith(OUTSIDE_PREFIX) and not outside.is_symlink():
            shutil.rmtree(outside, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


def _end_survivors(root: Path) -> None:
    """A number alone is not trusted: the command line must name this run's directory."""
    places = [str(root), *_lines(root / "outside")]
    for pid in _lines(root / "pids"):
        shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", pid], capture_output=True, text=True, check=False).stdout
        if any(place in shown for place in places):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _temporary_directories() -> list[Path]:
    return [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]


@contextlib.contextmanager
def _writable(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except PermissionError as error:
        owner = directory.stat().st_uid if directory.exists() else directory.parent.stat().st_uid
        raise EmbeddedError(
            f"{directory} cannot be written by uid {os.geteuid()} (it belongs to uid {owner}): remove it, or name another with --run-dir."
        ) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take(path: Path) -> int | None:
    """An open, locked file, or None when a live run holds it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
