"""Crossing, ledger -> schedule: queued rows into their lanes. Record before publish; the relay repairs what was not published."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from .brokers.base import Broker, Publication, Published
from .models.moves import Runnable


@lru_cache(maxsize=4096)
def task_number(name: str) -> int:
    """A stable 31-bit number for a task name: the schedule never holds names. See docs/decisions/0002."""
    return int.from_bytes(hashlib.blake2s(name.encode(), digest_size=4).digest(), "big") & 0x7FFF_FFFF


def publication(row: Runnable) -> Publication:
    return Publication(row.job_id, row.queue, row.lane_key, task_number(row.task), row.cost, row.priority, at_head=row.suspect > 0)


def publish(broker: Broker, rows: Sequence[Runnable], *, epoch: str | None = None) -> list[Published]:
    """Put queued rows into their lanes. Raises what the broker raises; the rows stay queued and the relay offers them again."""
    return broker.publish([publication(row) for row in rows], epoch=epoch) if rows else []
