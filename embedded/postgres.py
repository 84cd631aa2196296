"""A private Postgres server on a loopback port, with password logins and a plain role for the application.

The application's role is neither superuser nor BYPASSRLS: those would see every tenant's rows whatever the policies say.
It owns its database, so it owns its tables, which is why policies need FORCE. It has CREATEDB because the test runner makes databases.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from embedded.errors import EmbeddedError
from embedded.place import Place
from embedded.server import HOST, Server, launched, server_environment
from embedded.wheels import postgres_programs

ADMIN, APP, DATABASE = "postgres", "shop_app", "shop"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # no socket file, so no limit on the length of a path
    "max_connections": "200",
    "password_encryption": "scram-sha-256",
    "dynamic_shared_memory_type": "mmap",  # in the data directory: a killed server leaves nothing in /dev/shm
    "timezone": "UTC",
}
# A crash of the machine may lose commits; a crash or kill of Postgres does not. For test runs only.
WITHOUT_FSYNC = {"fsync": "off", "full_page_writes": "off"}


class Postgres(Server):
    """`fsync=False` is for tests. `url` is the application's role, `admin_url` the superuser's (for the harness only)."""

    name = "Postgres"
    port_option = "--postgres-port"
    death_signal = signal.SIGQUIT  # immediate shutdown: the children too, no checkpoint
    stop_signal = signal.SIGINT  # fast shutdown: clients are disconnected, a checkpoint is written

    def __init__(
        self,
        config: dict[str, str] | None = None,
        *,
        fsync: bool = True,
        port: int | None = None,
        place: Place | None = None,
        programs: Path | None = None,
    ) -> None:
        super().__init__(port=port, place=place)
        self._settings = SETTINGS | ({} if fsync else WITHOUT_FSYNC) | (config or {})
        self._given_programs = programs
        self.password, self.admin_password = secrets.token_hex(16), secrets.token_hex(16)

    @property
    def url(self) -> str:
        return f"postgres://{APP}:{self.password}@{HOST}:{self.port}/{DATABASE}"

    @property
    def admin_url(self) -> str:
        return f"postgres://{ADMIN}:{self.admin_password}@{HOST}:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def _prepare(self, place: Place) -> None:
        self._bin = place.within_reach(postgres_programs(self._given_programs)).directory
        secret = self.directory / "admin-password"
        secret.write_text(self.admin_password)
        secret.chmod(0o600)
        if place.identity:
            place.identity.own(secret)
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", ADMIN, f"--pwfile={secret}", "--auth=scram-sha-256"]
        command += ["--encoding=UTF8", "--no-sync", "--no-instructions", *self._locale()]
        made = subprocess.run(
            launched(command, signal.SIGKILL, place),
            cwd=self.directory,
            env=server_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        secret.unlink()
        if made.returncode:
            raise EmbeddedError(f"Postgres's data directory could not be made; initdb said:\n{(made.stdout + made.stderr)[-2000:]}")

    def _locale(self) -> list[str]:
        """Unicode rules that do not depend on the system's locales, where this Postgres has them (17 and newer)."""
        known = subprocess.run(
            [self._bin / "initdb", "--help"], env=server_environment(), capture_output=True, text=True, check=False
        ).stdout
        return (
            ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if "--builtin-locale" in known else ["--locale=C.UTF-8"]
        )

    def _command(self) -> list[str]:
        settings = [option for key, value in self._settings.items() for option in ("-c", f"{key}={value}")]
        return [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port), *settings]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.admin_url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _first_up(self) -> None:
        app, database = sql.Identifier(APP), sql.Identifier(DATABASE)
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} NOSUPERUSER NOBYPASSRLS NOCREATEROLE CREATEDB").format(
                    app, sql.Literal(self.password)
                )
            )
            admin.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, app))
