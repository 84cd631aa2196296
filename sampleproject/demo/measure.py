"""What a run's waits, drain rate and idle slots were: SQL over the ledger and the effects.

wait: from the commit of the request (the load's stamp; of a job that a job enqueued: the end of that job) to the start of the body. The
    body's first statement takes the time (the effect's `began_at`); deliver_webhook, which writes its effect last, has the ledger's.
drain: jobs that ended per second, from the moment the file had become jobs until the last one that succeeded had ended. Both runs have the
    same jobs to do, so the rates compare what the workers get done, whoever comes first.
idle slots: slots without a running body, averaged over the same time.
Only jobs that succeeded have a wait: poison runs several times on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sampleproject.shop.tasks import deliver_webhook, generate_monthly_report, import_order_rows, import_orders, send_password_reset

from .load import Asked

# The class of work of each task, also in the run where there is only one queue.
QUEUE_OF = {
    send_password_reset.name: "interactive",
    generate_monthly_report.name: "default",
    deliver_webhook.name: "default",
    import_orders.name: "bulk",
    import_order_rows.name: "bulk",
}


@dataclass(frozen=True, slots=True)
class Waits:
    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Measured:
    """`waits`: (quiet or noisy, queue) -> waits. `drain_seconds`: how long all of it took once the file had become jobs."""

    waits: dict[tuple[str, str], Waits]
    jobs: int
    dead_letters: int
    drain_per_s: float
    drain_seconds: float
    idle_slots: float


_PREPARE = """
CREATE TEMPORARY TABLE run_job ON COMMIT DROP AS
WITH asked AS (SELECT * FROM unnest(%(correlation)s::text[], %(committed)s::timestamptz[], %(timed)s::bool[])
                  AS a(correlation_id, committed_at, timed)),
     queue_of AS (SELECT * FROM unnest(%(tasks)s::text[], %(queues)s::text[]) AS q(task, class)),
     root AS (SELECT DISTINCT ON (correlation_id) correlation_id, id, finished_at FROM tenant_queue_job
              WHERE tenant_id = ANY(%(tenants)s) ORDER BY correlation_id, id)
SELECT j.id, j.task, j.status, j.finished_at, q.class, a.timed, CASE WHEN j.tenant_id = %(noisy)s THEN 'noisy' ELSE 'quiet' END AS party,
    coalesce(j.began_at, j.finished_at) AS ran_from,
    CASE WHEN j.id = root.id THEN a.committed_at ELSE root.finished_at END AS committed_at,
    CASE WHEN j.task = %(writes_last)s THEN j.began_at
         ELSE (SELECT max(e.began_at) FROM shop_jobeffect e WHERE e.job_id = j.id) END AS began_at
FROM tenant_queue_job j JOIN root USING (correlation_id) LEFT JOIN asked a USING (correlation_id) LEFT JOIN queue_of q ON q.task = j.task
WHERE j.tenant_id = ANY(%(tenants)s)
"""
_WAITS = """
SELECT party, class, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY wait_ms), percentile_disc(0.99) WITHIN GROUP (ORDER BY wait_ms),
    max(wait_ms)
FROM (SELECT party, class, extract(epoch FROM began_at - committed_at)::float8 * 1000 AS wait_ms
      FROM run_job WHERE status = 'succeeded' AND timed) waited
GROUP BY party, class
"""
_DRAIN = """
WITH span AS (SELECT (SELECT finished_at FROM run_job WHERE task = %(reads)s) AS first,
                     (SELECT max(finished_at) FROM run_job WHERE status = 'succeeded') AS last)
SELECT extract(epoch FROM last - first)::float8, count(*) FILTER (WHERE finished_at > first AND finished_at <= last),
    sum(greatest(0, extract(epoch FROM least(finished_at, last) - greatest(ran_from, first))))::float8
FROM run_job, span GROUP BY first, last
"""


def measure(connection: BaseDatabaseWrapper, *, tenants: Sequence[str], noisy: str, asked: Sequence[Asked], slots: int) -> Measured:
    """Of a run that has come to its end."""
    params = {
        "correlation": [a.correlation_id for a in asked], "committed": [a.committed_at for a in asked], "timed": [a.timed for a in asked],
        "tasks": list(QUEUE_OF), "queues": list(QUEUE_OF.values()), "tenants": list(tenants), "noisy": noisy,
        "writes_last": deliver_webhook.name,
    }  # fmt: skip
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(_PREPARE, params)
        waits = {(party, queue): Waits(*numbers) for party, queue, *numbers in _rows(cursor, _WAITS, None)}
        ((seconds, ended, busy_seconds),) = _rows(cursor, _DRAIN, {"reads": import_orders.name})
        ((jobs, dead_letters),) = _rows(cursor, "SELECT count(*), count(*) FILTER (WHERE status = 'dead') FROM run_job", None)
    return Measured(waits, jobs, dead_letters, ended / seconds, seconds, slots - busy_seconds / seconds)


def _rows(cursor: Any, sql: str, params: Any) -> list[tuple[Any, ...]]:
    cursor.execute(sql, params)
    return list(cursor.fetchall())
