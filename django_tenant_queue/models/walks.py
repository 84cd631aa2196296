"""Walks over the unfinished rows of the ledger in bounded pages: what the keepers read.

A walk goes along the index (xid, id) of unfinished rows, a page a statement, so it holds no snapshot and no memory beyond a page.
A row that is moved while a walk is under way gets a new xid: it lies ahead of the walk, or in the relay's next difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connections

from .moves import Runnable
from .snapshot import Difference, Snapshot

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Position:
    """Where a walk stands: after the row `id` of transaction `xid`."""

    xid: int
    id: UUID


LAST_ID = UUID(int=2**128 - 1)
START = Position(-1, LAST_ID)


@dataclass(frozen=True, slots=True)
class Running:
    """A running row as its lease needs it."""

    job_id: UUID
    token: str
    queue: str
    lane_key: str
    task: str
    cost: int


@dataclass(frozen=True, slots=True)
class Look:
    """What one statement tells an idle relay. `due`: a row waits whose time has come."""

    snapshot: Snapshot
    due: bool


def look(database: str) -> Look:
    with connections[database].cursor() as cursor:
        cursor.execute(_LOOK)
        text, due = cursor.fetchone()
        return Look(Snapshot.parse(text), due)


def newly_runnable(database: str, difference: Difference, page: int = PAGE) -> Iterator[list[Runnable]]:
    """Pages of the queued rows that transactions of this difference made runnable."""
    if difference.ended:
        yield from _queued_pages(database, "j.xid = ANY(%s)", [list(difference.ended)], START, page)
    if difference.low < difference.high:
        # The walk's own position is the lower bound: of two, the index scan may begin at the worse one.
        bounds: list[Any] = [difference.high, list(difference.still_open)]
        yield from _queued_pages(database, "j.xid < %s AND j.xid <> ALL(%s::bigint[])", bounds, Position(difference.low - 1, LAST_ID), page)


def queued_up_to(database: str, last: int, page: int = PAGE) -> Iterator[list[Runnable]]:
    """Pages of the queued rows of transactions up to and with `last`."""
    return _queued_pages(database, "j.xid <= %s", [last], START, page)


def queued_after(database: str, after: Position, limit: int) -> tuple[list[Runnable], Position]:
    """One page of queued rows behind `after`, and where it ends."""
    rows = _page(database, _QUEUED, "true", [], after, limit)
    return [Runnable(*row[1:]) for row in rows], _end(rows, after)


def running_pages(database: str, page: int = PAGE) -> Iterator[list[Running]]:
    after = START
    while rows := _page(database, _RUNNING, "true", [], after, page):
        yield [Running(*row[1:]) for row in rows]
        after = _end(rows, after)


def last_xid(database: str) -> int:
    """The highest transaction that an unfinished row carries (that of another server, after a restored dump); -1 when there is none."""
    with connections[database].cursor() as cursor:
        cursor.execute(_LAST_XID)
        return int(cursor.fetchone()[0])


def _queued_pages(database: str, condition: str, params: Sequence[Any], after: Position, page: int) -> Iterator[list[Runnable]]:
    while rows := _page(database, _QUEUED, condition, params, after, page):
        yield [Runnable(*row[1:]) for row in rows]
        after = _end(rows, after)


def _page(database: str, sql: str, condition: str, params: Sequence[Any], after: Position, limit: int) -> list[tuple[Any, ...]]:
    with connections[database].cursor() as cursor:
        cursor.execute(sql.format(condition=condition), [*params, after.xid, after.id, limit])
        return list(cursor.fetchall())


def _end(rows: Sequence[tuple[Any, ...]], before: Position) -> Position:
    return Position(rows[-1][0], rows[-1][1]) if rows else before


_DUE = "j.xid IS NULL AND j.finished_at IS NULL AND j.due_at <= now() AND j.status IN ('scheduled', 'retrying')"
_LOOK = f"SELECT pg_current_snapshot()::text, EXISTS (SELECT 1 FROM tenant_queue_job j WHERE {_DUE})"
_UNFINISHED = "j.finished_at IS NULL AND j.xid IS NOT NULL"
_WALK = f"FROM tenant_queue_job j WHERE {_UNFINISHED} AND {{condition}} AND (j.xid, j.id) > (%s, %s)"
# No due time is asked for: now() is the begin of this transaction, which may be older than the promotion of a row. Start asks for it.
_QUEUED = f"""
SELECT j.xid, j.id, j.queue, j.lane_key, j.task, j.cost, j.priority, j.suspect
{_WALK} AND j.status = 'queued' ORDER BY j.xid, j.id LIMIT %s"""
_RUNNING = f"""
SELECT j.xid, j.id, j.claim_token, j.queue, j.lane_key, j.task, j.cost
{_WALK} AND j.status = 'running' ORDER BY j.xid, j.id LIMIT %s"""
_LAST_XID = f"SELECT coalesce(max(j.xid), -1) FROM tenant_queue_job j WHERE {_UNFINISHED}"
