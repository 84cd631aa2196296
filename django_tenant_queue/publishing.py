"""Crossing, ledger -> schedule: queued rows into their lanes. Record before publish; the relay repairs what was not published."""

from __future__ import annotations

from collections.abc import Sequence

from .brokers.base import Broker, Publication, Published
from .models.moves import Runnable
from .registry import task_number


def publication(row: Runnable) -> Publication:
    return Publication(row.job_id, row.queue, row.lane_key, task_number(row.task), row.cost, row.priority, at_head=row.suspect > 0)


def publish(broker: Broker, rows: Sequence[Runnable], *, epoch: str | None = None) -> list[Published]:
    """Put queued rows into their lanes. Raises what the broker raises; the rows stay queued and the relay offers them again."""
    return broker.publish([publication(row) for row in rows], epoch=epoch) if rows else []
