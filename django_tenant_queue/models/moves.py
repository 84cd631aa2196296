"""The moves of a job: the only code that assigns `status`. Each is one guarded statement; the guard decides, never a read before it.

Guards (design: "who may move a job"): the fence for whoever runs the job, the claim token for whoever found its lease expired,
`status` and due time for start and promotion. A move that matches no row changes nothing and says so by what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections, models

from ..envelope import Envelope

if TYPE_CHECKING:
    from .job import Job

MAX_ERRORS = 20
XID = "pg_current_xact_id()::text::bigint"
_ENVELOPE = (
    "j.id, j.tenant_id, j.actor_id, j.actor_type, j.task, j.payload, j.queue, j.priority, j.cost, j.enqueued_at, j.correlation_id, j.trace"
)
_PUBLICATION = "j.id, j.queue, j.lane_key, j.task, j.cost, j.priority, j.suspect"


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job this worker has moved to running: what its run needs, read once."""

    envelope: Envelope
    lane_key: str
    fence: int
    token: str
    seal: str
    seal_key: str
    failures: int
    crashes: int
    suspect: int
    infrastructure: int

    @property
    def id(self) -> UUID:
        return self.envelope.job_id

    @property
    def needs_quarantine(self) -> bool:
        """Its process died at least once with it: it runs in a fork of its own."""
        return self.suspect > 0 or self.crashes > 0


@dataclass(frozen=True, slots=True)
class Runnable:
    """A queued row as its lane needs it. `suspect` > 0 goes to the head of its lane."""

    job_id: UUID
    queue: str
    lane_key: str
    task: str
    cost: int
    priority: int
    suspect: int


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Why a claim could not be started, from the row as it is now. `status` None: there is no such row."""

    job_id: UUID
    status: str | None
    due: bool
    queue: str
    lane_key: str
    claim_token: str


class JobQuerySet(models.QuerySet["Job"]):
    """Queries and moves. All moves need PostgreSQL."""

    # -- record

    def record(self, jobs: Sequence[Job], *, delays: Sequence[float | None]) -> None:
        """Insert rows in one statement. Scheduled rows are due `delays[i]` seconds from the database's now, else at `jobs[i].due_at`;
        queued ones at once by the database's clock: by a web server's clock that is ahead, start would refuse them."""
        # One JSON text: psycopg escapes arrays item by item in Python, which cost more than all the rest of an enqueue.
        rows = [{name: getattr(job, name) for name in _INSERTED} for job in jobs]
        for row, delay in zip(rows, delays, strict=True):
            # waits for a due time: so it is not runnable and carries no xid
            row.update(id=str(row["id"]), enqueued_at=row["enqueued_at"].isoformat(), due_at=row["due_at"].isoformat())
            row.update(waits=row["status"] == "scheduled", delay=delay)
        with self._cursor() as cursor:
            cursor.execute(_INSERT, [json.dumps(rows, ensure_ascii=False)])

    # -- start

    def start(self, claims: Sequence[tuple[UUID, str, str, str]]) -> list[StartedJob]:
        """(job id, token, queue, lane key) -> the rows moved to running: fence + 1, token stored.

        Only rows queued, due and still of that queue and lane; a row locked by somebody else is skipped (SKIP LOCKED, in id order).
        """
        if not claims:
            return []
        ids, tokens, queues, lanes = (list(column) for column in zip(*claims, strict=True))
        with self._cursor() as cursor:
            cursor.execute(_START, [ids, tokens, queues, lanes])
            return [StartedJob(Envelope(*row[:12]), *row[12:]) for row in cursor.fetchall()]

    def why_unstarted(self, job_ids: Iterable[UUID]) -> dict[UUID, Unstarted]:
        """The rows as they are, for claims that could not be started."""
        ids = list(job_ids)
        found = {job_id: Unstarted(job_id, None, False, "", "", "") for job_id in ids}
        with self._cursor() as cursor:
            cursor.execute(
                "SELECT j.id, j.status, j.due_at <= now(), j.queue, j.lane_key, j.claim_token FROM tenant_queue_job j WHERE j.id = ANY(%s)",
                [ids],
            )
            found.update((row[0], Unstarted(*row)) for row in cursor.fetchall())
        return found

    # -- settle: by whoever runs the job, guarded by its fence

    def succeed(
        self, job_id: UUID, fence: int, *, result: str | None, began_at: datetime | None, condition: str = "", params: Sequence[Any] = ()
    ) -> bool:
        """running -> succeeded. `condition`: a further guard in SQL (the boundary and tenant markers), evaluated in this transaction."""
        sql = _SUCCEED + (f" AND {condition}" if condition else "")
        return self._changed(sql, [result, began_at, job_id, fence, *params])

    def retry(
        self,
        job_id: UUID,
        fence: int,
        *,
        after_seconds: float,
        error: dict[str, Any],
        began_at: datetime | None,
        infrastructure: bool = False,
    ) -> bool:
        """running -> retrying, due after `after_seconds` by the database's clock; counts a failure, or an infrastructure error."""
        counts = (0, 1) if infrastructure else (1, 0)
        return self._changed(_RETRY, [after_seconds, *counts, _error(error), began_at, error.get("message", "")[:500], job_id, fence])

    def put_back(self, job_id: UUID, fence: int, *, after_seconds: float, reason: str, errors: Sequence[dict[str, Any]] = ()) -> bool:
        """running -> retrying without counting anything: this worker cannot run it, another may."""
        return self._changed(_DEFER, [after_seconds, json.dumps(list(errors)), reason, job_id, fence])

    def errors_of(self, job_id: UUID) -> list[dict[str, Any]]:
        """What is recorded of a job's attempts that did not succeed."""
        found = self.filter(pk=job_id).values_list("errors", flat=True).first()
        return list(found or [])

    def cancel_running(self, job_id: UUID, fence: int, *, reason: str, began_at: datetime | None) -> bool:
        """running -> cancelled, by its runner."""
        return self._changed(_CANCEL_RUNNING, [reason, began_at, job_id, fence])

    def bury(
        self,
        job_id: UUID,
        fence: int,
        *,
        reason: str,
        error: dict[str, Any],
        traceback: str,
        fingerprint: str,
        began_at: datetime | None = None,
        failed: bool = False,
        crashed: bool = False,
    ) -> bool:
        """running -> dead, and its dead letter, in one statement.

        `failed`: this attempt counts as a failure; `crashed`: as a crash, and so do the shared deaths before it."""
        row = [error.get("class", ""), error.get("message", ""), traceback, fingerprint]
        params = [int(failed), crashed, _error(error), began_at, _sentence(reason, error), job_id, fence, reason, *row]
        return self._changed(_BURY, params)

    # -- hand back

    def hand_back(self, fences: Iterable[tuple[UUID, int]], *, penalty: bool = True) -> list[Runnable]:
        """running -> queued by fence; an interruption is counted when `penalty`. -> the rows to publish."""
        pairs = list(fences)
        if not pairs:
            return []
        ids, numbers = zip(*pairs, strict=True)
        return self._runnable(_HAND_BACK, [int(penalty), list(ids), list(numbers)])

    def hand_back_tokens(self, tokens: Iterable[tuple[UUID, str]]) -> list[Runnable]:
        """running -> queued by (job id, claim token), an interruption: their leases expired. -> the rows to publish.

        A row locked by a zombie's settle is skipped: it commits and is terminal, or the reconciler finds it."""
        pairs = list(tokens)
        if not pairs:
            return []
        ids, names = zip(*pairs, strict=True)
        return self._runnable(_HAND_BACK_TOKENS, [list(ids), list(names)])

    def suspect_of(self, fences: Iterable[tuple[UUID, int]]) -> list[Runnable]:
        """running -> queued as suspects: they had begun in a process whose death they may have caused. -> the rows to publish."""
        pairs = list(fences)
        if not pairs:
            return []
        ids, numbers = zip(*pairs, strict=True)
        return self._runnable(_SUSPECT, [list(ids), list(numbers)])

    def crash(self, job_id: UUID, fence: int, *, error: dict[str, Any], max_crashes: int) -> list[Runnable]:
        """running -> queued with its crash counted (and shared deaths before it), unless that reaches `max_crashes`: then nothing is
        changed and [] is returned; the caller buries it."""
        return self._runnable(_CRASH, [_error(error), job_id, fence, max_crashes])

    # -- keepers

    def probe(self) -> None:
        """One round trip. Raises what the database raises when it cannot be reached."""
        with self._cursor() as cursor:
            cursor.execute("SELECT 1")

    def queued_of(self, job_ids: Iterable[UUID]) -> list[Runnable]:
        """Those of these rows that are queued and due."""
        ids = list(job_ids)
        return self._runnable(_QUEUED_OF, [ids]) if ids else []

    def promote_due(self, limit: int) -> list[Runnable]:
        """scheduled or retrying, due by the database's clock -> queued. Rows locked by others are left for the next pass."""
        return self._runnable(_PROMOTE, [limit])

    def cancel(self, job_ids: Iterable[UUID], *, reason: str) -> list[UUID]:
        """scheduled, queued or retrying -> cancelled. Entries left in lanes are dropped when they are claimed."""
        with self._cursor() as cursor:
            cursor.execute(_CANCEL, [reason, list(job_ids)])
            return [row[0] for row in cursor.fetchall()]

    # -- private

    def _cursor(self) -> Any:
        return connections[self.db].cursor()

    def _changed(self, sql: str, params: list[Any]) -> bool:
        with self._cursor() as cursor:
            cursor.execute(sql, params)
            return bool(cursor.rowcount == 1)

    def _runnable(self, sql: str, params: list[Any]) -> list[Runnable]:
        with self._cursor() as cursor:
            cursor.execute(sql, params)
            return [Runnable(*row) for row in cursor.fetchall()]


def _error(error: dict[str, Any]) -> str:
    return json.dumps([error])


def _sentence(reason: str, error: dict[str, Any]) -> str:
    return f"{reason}: {error.get('message', '')}"[:500].rstrip(": ")


_INSERTED = {
    "id": "uuid", "tenant_id": "text", "lane_key": "text", "actor_id": "text", "actor_type": "text", "task": "text", "payload": "text",
    "queue": "text", "priority": "int", "cost": "int", "status": "text", "enqueued_at": "timestamptz", "due_at": "timestamptz",
    "correlation_id": "text", "trace": "text", "seal": "text", "seal_key": "text",
}  # fmt: skip
_INSERT = f"""
INSERT INTO tenant_queue_job ({", ".join(name for name in _INSERTED if name != "due_at")}, due_at, xid,
    reason, fence, claim_token, failures, crashes, interruptions, infrastructure, suspect, errors)
SELECT {", ".join("n." + name for name in _INSERTED if name != "due_at")},
    CASE WHEN n.waits THEN coalesce(now() + make_interval(secs => n.delay), n.due_at) ELSE now() END,
    CASE WHEN n.waits THEN NULL ELSE {XID} END, '', 0, '', 0, 0, 0, 0, 0, '[]'
FROM json_to_recordset(%s::json) AS n({", ".join(f"{name} {kind}" for name, kind in _INSERTED.items())}, waits bool, delay float8)
"""
_START = f"""
WITH claimed AS (SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) AS c(id, token, queue, lane_key)),
locked AS (
    SELECT j.id, c.token FROM tenant_queue_job j JOIN claimed c ON c.id = j.id AND c.queue = j.queue AND c.lane_key = j.lane_key
    WHERE j.status = 'queued' AND j.due_at <= now() ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
UPDATE tenant_queue_job j SET status = 'running', fence = j.fence + 1, claim_token = l.token, started_at = now(), began_at = NULL
FROM locked l WHERE j.id = l.id
RETURNING {_ENVELOPE}, j.lane_key, j.fence, j.claim_token, j.seal, j.seal_key, j.failures, j.crashes, j.suspect, j.infrastructure
"""
_BY_FENCE = "j.id = %s AND j.fence = %s AND j.status = 'running'"
_APPEND = f"(CASE WHEN jsonb_array_length(j.errors) >= {MAX_ERRORS} THEN j.errors - 0 ELSE j.errors END) || (%s)::jsonb"
_SUCCEED = f"""
UPDATE tenant_queue_job j SET status = 'succeeded', finished_at = clock_timestamp(), result = %s, began_at = %s, suspect = 0, reason = ''
WHERE {_BY_FENCE}"""
_RETRY = f"""
UPDATE tenant_queue_job j SET status = 'retrying', xid = NULL, due_at = now() + make_interval(secs => %s),
    failures = j.failures + %s, infrastructure = j.infrastructure + %s, errors = {_APPEND}, began_at = %s, reason = %s, suspect = 0
WHERE {_BY_FENCE}"""
_DEFER = f"""
UPDATE tenant_queue_job j SET status = 'retrying', xid = NULL, due_at = now() + make_interval(secs => %s),
    errors = {_APPEND}, reason = %s
WHERE {_BY_FENCE}"""
_CANCEL_RUNNING = (
    f"UPDATE tenant_queue_job j SET status = 'cancelled', finished_at = clock_timestamp(), reason = %s, began_at = %s WHERE {_BY_FENCE}"
)
_BURY = f"""
WITH buried AS (
    UPDATE tenant_queue_job j SET status = 'dead', finished_at = clock_timestamp(), failures = j.failures + %s,
        crashes = j.crashes + CASE WHEN %s THEN 1 + j.suspect ELSE 0 END, errors = {_APPEND}, began_at = %s, reason = %s
    WHERE {_BY_FENCE} RETURNING j.id, j.tenant_id, j.task, j.errors
)
INSERT INTO tenant_queue_deadletter (job_id, tenant_id, task, attempts, created_at, reason, error_class, message, traceback, fingerprint)
SELECT b.id, b.tenant_id, b.task, b.errors, clock_timestamp(), %s, %s, %s, %s, %s FROM buried b
"""
_TO_QUEUED = f"status = 'queued', xid = {XID}, claim_token = ''"
_HAND_BACK = f"""
UPDATE tenant_queue_job j SET {_TO_QUEUED}, interruptions = j.interruptions + %s
FROM unnest(%s::uuid[], %s::bigint[]) AS f(id, fence) WHERE j.id = f.id AND j.fence = f.fence AND j.status = 'running'
RETURNING {_PUBLICATION}"""
_HAND_BACK_TOKENS = f"""
WITH lost AS (
    SELECT j.id FROM tenant_queue_job j JOIN unnest(%s::uuid[], %s::text[]) AS t(id, token) ON t.id = j.id AND t.token = j.claim_token
    WHERE j.status = 'running' ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
UPDATE tenant_queue_job j SET {_TO_QUEUED}, interruptions = j.interruptions + 1 FROM lost WHERE j.id = lost.id
RETURNING {_PUBLICATION}"""
_SUSPECT = f"""
UPDATE tenant_queue_job j SET {_TO_QUEUED}, suspect = j.suspect + 1
FROM unnest(%s::uuid[], %s::bigint[]) AS f(id, fence) WHERE j.id = f.id AND j.fence = f.fence AND j.status = 'running'
RETURNING {_PUBLICATION}"""
_CRASH = f"""
UPDATE tenant_queue_job j SET {_TO_QUEUED}, crashes = j.crashes + 1 + j.suspect, suspect = 0, errors = {_APPEND}
WHERE {_BY_FENCE} AND j.crashes + 1 + j.suspect < %s
RETURNING j.id, j.queue, j.lane_key, j.task, j.cost, j.priority, 1"""
_PROMOTE = f"""
WITH due AS (
    SELECT j.id FROM tenant_queue_job j WHERE j.xid IS NULL AND j.finished_at IS NULL AND j.due_at <= now()
    AND j.status IN ('scheduled', 'retrying') ORDER BY j.due_at LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE tenant_queue_job j SET status = 'queued', xid = {XID} FROM due WHERE j.id = due.id
RETURNING {_PUBLICATION}"""
_CANCEL = """
UPDATE tenant_queue_job j SET status = 'cancelled', finished_at = clock_timestamp(), reason = %s
WHERE j.id = ANY(%s) AND j.status IN ('scheduled', 'queued', 'retrying') RETURNING j.id"""
_QUEUED_OF = f"SELECT {_PUBLICATION} FROM tenant_queue_job j WHERE j.id = ANY(%s) AND j.status = 'queued' AND j.due_at <= now()"
