"""A private Valkey server on a loopback port, behind a random password."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from embedded.place import Place
from embedded.server import HOST, Server
from embedded.wheels import valkey_programs

DEFAULTS = {"save": '""', "appendonly": "no", "maxmemory-policy": "noeviction", "set-proc-title": "no"}


class Valkey(Server):
    """`config` holds lines of valkey.conf, e.g. {"maxmemory": "8mb", "appendonly": "yes"}. By default nothing is kept on disk."""

    name = "Valkey"
    port_option = "--redis-port"
    death_signal = signal.SIGKILL
    stop_signal = signal.SIGTERM

    def __init__(
        self, config: Mapping[str, str] | None = None, *, port: int | None = None, place: Place | None = None, program: Path | None = None
    ) -> None:
        super().__init__(port=port, place=place)
        self._config = DEFAULTS | dict(config or {})
        self._program = program
        self.password = secrets.token_hex(16)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def _prepare(self, place: Place) -> None:
        programs, name = valkey_programs(self._program)
        self._executable = place.within_reach(programs).directory / name
        lines = {"bind": HOST, "protected-mode": "yes", "requirepass": self.password, "dir": f'"{self.directory}"'} | self._config
        path = self.directory / "valkey.conf"
        path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        path.chmod(0o600)
        if place.identity:
            place.identity.own(path)

    def _command(self) -> list[str]:
        return [str(self._executable), str(self.directory / "valkey.conf"), "--port", str(self.port)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                replies = connection.makefile("rb")
                return replies.readline() == b"+OK\r\n" and replies.readline() == b"+PONG\r\n"
        except OSError:
            return False
