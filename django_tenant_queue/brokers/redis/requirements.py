"""What a server must be to hold a schedule: new enough, and never throwing keys away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...exceptions import BrokerMisconfigured

LOWEST_REDIS = (6, 2)
LOWEST_VALKEY = (8, 0)


def check_server(info: Mapping[str, Any], place: str) -> None:
    """Judge what INFO says of the sections "server" and "memory". CONFIG is not asked: hosted servers often block it."""
    _check_version(info, place)
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        raise BrokerMisconfigured(
            f"The schedule at {place} has maxmemory-policy {policy!r}: it would throw away waiting jobs and leases when it is full. "
            "Set maxmemory-policy to noeviction, or use a server of its own."
        )


def _check_version(info: Mapping[str, Any], place: str) -> None:
    valkey = info.get("valkey_version")
    name, lowest, found = ("Valkey", LOWEST_VALKEY, valkey) if valkey else ("Redis", LOWEST_REDIS, info.get("redis_version"))
    if _numbers(found) < lowest:
        raise BrokerMisconfigured(f"The schedule at {place} is {name} {found}; it needs Redis 6.2 or Valkey 8 at least.")


def _numbers(version: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".")[:2] if part.isdigit())
