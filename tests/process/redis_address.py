"""Where a Redis URL points, and the same URL through another port of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class RedisAddress:
    url: str

    @property
    def target(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 6379

    def through(self, port: int) -> str:
        parts = urlsplit(self.url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))
