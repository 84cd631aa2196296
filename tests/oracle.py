"""The oracle: after any fault, what must be true of ledger, effects and schedule. Each check is SQL over what the tasks wrote.

Numbers as in the catalogue of faults: (1) one terminal state, (2) one effect exactly when it succeeded, (3) by the last fence,
(4) as its tenant, (5) fences strictly increase, (6) the schedule ends empty, (7) no backend idle in a transaction,
(8) nobody waited too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from django_tenant_queue.brokers.base import Broker

_JOBS = "SELECT id FROM unnest(%(ids)s::uuid[]) AS enqueued(id)"
_QUERIES = {
    "(1) lost, it has no row": f"SELECT e.id FROM ({_JOBS}) e LEFT JOIN tenant_queue_job j USING (id) WHERE j.id IS NULL",
    "(1) not in a terminal state": """
        SELECT id FROM tenant_queue_job WHERE id = ANY(%(ids)s)
        AND (status NOT IN ('succeeded', 'cancelled', 'dead') OR finished_at IS NULL)""",
    "(1) dead without a dead letter, or a dead letter of another state": """
        SELECT j.id FROM tenant_queue_job j LEFT JOIN tenant_queue_deadletter d ON d.job_id = j.id
        WHERE j.id = ANY(%(ids)s) AND (j.status = 'dead') <> (d.job_id IS NOT NULL)""",
    "(2) succeeded and left no effect": """
        SELECT j.id FROM tenant_queue_job j LEFT JOIN shop_jobeffect e ON e.job_id = j.id
        WHERE j.id = ANY(%(ids)s) AND j.status = 'succeeded' AND e.id IS NULL""",
    "(2) more than one effect": "SELECT job_id FROM shop_jobeffect WHERE job_id = ANY(%(ids)s) GROUP BY job_id HAVING count(*) > 1",
    "(2) an effect though it did not succeed": """
        SELECT j.id FROM tenant_queue_job j JOIN shop_jobeffect e ON e.job_id = j.id
        WHERE j.id = ANY(%(ids)s) AND j.status <> 'succeeded'""",
    "(3) the effect of another fence": """
        SELECT j.id FROM tenant_queue_job j JOIN shop_jobeffect e ON e.job_id = j.id WHERE j.id = ANY(%(ids)s) AND e.fence <> j.fence""",
    "(4) the effect of another tenant, or seen by the database as another": """
        SELECT j.id FROM tenant_queue_job j JOIN shop_jobeffect e ON e.job_id = j.id WHERE j.id = ANY(%(ids)s)
        AND (e.tenant_id <> coalesce(j.tenant_id, '') OR e.tenant_seen <> coalesce(j.tenant_id, ''))""",
    "(5) fences of its attempts do not strictly increase": """
        SELECT id FROM (
            SELECT id, fence, (error->>'fence')::bigint AS at, lag((error->>'fence')::bigint) OVER (PARTITION BY id ORDER BY n) AS before
            FROM tenant_queue_job, jsonb_array_elements(errors) WITH ORDINALITY AS a(error, n) WHERE id = ANY(%(ids)s)
        ) attempts WHERE at <= before OR at > fence""",
    "(8) claimable for too long before its body began": """
        SELECT j.id FROM tenant_queue_job j JOIN shop_jobeffect e ON e.job_id = j.id WHERE j.id = ANY(%(ids)s)
        AND e.began_at - greatest(j.due_at, j.enqueued_at) > make_interval(secs => %(within)s)""",
}
_IDLE = """
    SELECT pid, left(query, 80) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%%' AND pid <> pg_backend_pid()"""


def check(enqueued: Iterable[UUID], *, broker: Broker | None = None, within_seconds: float = 1e6) -> list[str]:
    """Violations, as sentences; empty when all is well. `enqueued`: ids of the jobs whose enqueue was acknowledged.

    `broker`: its schedule must have ended empty. `within_seconds`: the stated bound on waiting, failed runs before included."""
    params = {"ids": list(enqueued), "within": within_seconds}
    violations = [f"{what}: {_some(rows)}" for what, sql in _QUERIES.items() if (rows := _query(sql, params))]
    violations += [f"(7) a backend is idle in a transaction: {row}" for row in _query(_IDLE, None)]
    return violations + (_leftovers(broker) if broker else [])


def _query(sql: str, params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def _leftovers(broker: Broker) -> list[str]:
    state = broker.state()
    left = [f"(6) a lease is left: {token} of {job_id}" for token, job_id in state.leases.items()]
    for where, lane in state.lanes.items():
        if lane.waiting or lane.running or lane.parked or lane.due_round is not None:
            left.append(f"(6) a lane is left: {where} {lane}")
    return left


def _some(rows: Sequence[tuple[Any, ...]]) -> str:
    shown = ", ".join(str(row[0]) for row in rows[:5])
    return shown if len(rows) <= 5 else f"{shown} and {len(rows) - 5} more"
