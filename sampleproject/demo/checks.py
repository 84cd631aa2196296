"""Lost, duplicated, wrong tenant: SQL over what the tasks wrote, compared with what was asked for.

What was asked for comes from whoever asked (the load, the writer of the file), never from the ledger or the CSV reader.
Tenant tables are read under each workspace's own tenant, by the application's plain role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from sampleproject.shop.row_security import TENANT_SETTING
from sampleproject.shop.sample_orders import SampleRow
from sampleproject.shop.tasks import (
    decode_logo_natively,
    deliver_webhook,
    generate_monthly_report,
    measure_logo,
    send_password_reset,
)

from .load import Asked

LOST, DUPLICATED, WRONG_TENANT = "lost", "duplicated", "wrong_tenant"
POISON_TASKS = [measure_logo.name, decode_logo_natively.name]


@dataclass(frozen=True, slots=True)
class Finding:
    """`count` things that are not as they should be; `kind` is lost, duplicated or wrong_tenant."""

    kind: str
    sentence: str
    count: int


@dataclass(frozen=True)
class Expected:
    """What a run must have come to. `mailed`: job ids in the messages that were sent; `received`: (job id, workspace) of each webhook."""

    tenants: Sequence[str]
    asked: Sequence[Asked]
    noisy: str
    upload_id: int
    rows: Iterable[SampleRow]
    mailed: Sequence[str]
    received: Sequence[tuple[str, str]]


def check(connection: BaseDatabaseWrapper, expected: Expected) -> list[Finding]:
    """Everything that is wrong; empty when all is well. Reads in one transaction and rolls its temporary tables back."""
    with transaction.atomic(using=connection.alias):
        found = [*_jobs(connection, expected), *_file(connection, expected), *_tenant_tables(connection, expected)]
        transaction.set_rollback(True, using=connection.alias)
    return [finding for finding in found if finding.count]


def totals(findings: Iterable[Finding]) -> dict[str, int]:
    counts = {LOST: 0, DUPLICATED: 0, WRONG_TENANT: 0}
    for finding in findings:
        counts[finding.kind] += finding.count
    return counts


# -- jobs and effects: no tenant tables

_JOBS = (
    (LOST, "requests that were committed have no job",
     "SELECT count(*) FROM asked a WHERE NOT EXISTS (SELECT FROM tenant_queue_job j WHERE j.correlation_id = a.correlation_id AND j.task = a.task)"),
    (LOST, "jobs have not come to an end", "SELECT count(*) FROM run_job j WHERE j.finished_at IS NULL"),
    (LOST, "jobs that nothing is wrong with did not succeed",
     "SELECT count(*) FROM run_job j WHERE j.finished_at IS NOT NULL AND j.status <> 'succeeded' AND j.task <> ALL(%(poison)s)"),
    (LOST, "poison jobs did not end as dead letters",
     "SELECT count(*) FROM run_job j LEFT JOIN tenant_queue_deadletter d ON d.job_id = j.id "
     "WHERE j.task = ANY(%(poison)s) AND (j.status <> 'dead' OR d.id IS NULL)"),
    (LOST, "jobs succeeded and left no effect",
     "SELECT count(*) FROM run_job j WHERE j.status = 'succeeded' AND NOT EXISTS (SELECT FROM shop_jobeffect e WHERE e.job_id = j.id)"),
    (LOST, "messages of password resets were not sent",
     "SELECT count(*) FROM run_job j WHERE j.task = %(reset)s AND j.status = 'succeeded' AND j.id <> ALL(%(mailed)s::uuid[])"),
    (LOST, "webhooks were not received",
     "SELECT count(*) FROM run_job j WHERE j.task = %(webhook)s AND j.status = 'succeeded' AND j.id <> ALL(%(received)s::uuid[])"),
    (DUPLICATED, "effects are more than one of their job",
     "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM run_effect e GROUP BY e.job_id) counted"),
    (DUPLICATED, "effects are of a run that did not succeed",
     "SELECT count(*) FROM run_effect e JOIN run_job j ON j.id = e.job_id WHERE j.status <> 'succeeded' OR e.fence <> j.fence"),
    (DUPLICATED, "effects are of no job of this run", "SELECT count(*) FROM run_effect e WHERE NOT EXISTS (SELECT FROM run_job j WHERE j.id = e.job_id)"),
    (DUPLICATED, "requests have more than one job",
     "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM asked a JOIN run_job j USING (correlation_id, task) "
     "GROUP BY correlation_id) counted"),
    (WRONG_TENANT, "jobs are of another workspace than the one that asked",
     "SELECT count(*) FROM asked a JOIN tenant_queue_job j USING (correlation_id) WHERE j.tenant_id IS DISTINCT FROM a.tenant_id"),
    (WRONG_TENANT, "effects are another workspace's than their job's, or the database saw another one",
     "SELECT count(*) FROM run_effect e JOIN run_job j ON j.id = e.job_id WHERE e.tenant_id <> j.tenant_id OR e.tenant_seen <> j.tenant_id"),
    (WRONG_TENANT, "webhooks were received for another workspace",
     "SELECT count(*) FROM unnest(%(received)s::uuid[], %(received_for)s::text[]) AS r(job_id, tenant_id) "
     "LEFT JOIN run_job j ON j.id = r.job_id WHERE j.tenant_id IS DISTINCT FROM r.tenant_id"),
)  # fmt: skip


def _jobs(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    params = {
        "tenants": list(expected.tenants), "poison": POISON_TASKS, "reset": send_password_reset.name, "webhook": deliver_webhook.name,
        "mailed": list(expected.mailed), "received": [job_id for job_id, _ in expected.received],
        "received_for": [workspace for _, workspace in expected.received],
        "correlation": [a.correlation_id for a in expected.asked], "asked_by": [a.tenant_id for a in expected.asked],
        "task": [a.task for a in expected.asked],
    }  # fmt: skip
    with connection.cursor() as cursor:
        for statement in _PREPARE_JOBS:
            cursor.execute(statement, params)
    for kind, sentence, sql in _JOBS:
        yield Finding(kind, sentence, _count(connection, sql, params))


# Whatever names a job or a workspace of this run: an effect that was moved to another workspace must still be found, and one moved to
# another job too.
_PREPARE_JOBS = (
    "CREATE TEMPORARY TABLE asked ON COMMIT DROP AS SELECT * FROM "
    "unnest(%(correlation)s::text[], %(asked_by)s::text[], %(task)s::text[]) AS a(correlation_id, tenant_id, task)",
    "CREATE TEMPORARY TABLE run_job ON COMMIT DROP AS SELECT id, tenant_id, task, status, fence, correlation_id, finished_at "
    "FROM tenant_queue_job WHERE tenant_id = ANY(%(tenants)s) OR correlation_id = ANY(%(correlation)s)",
    "CREATE TEMPORARY TABLE run_effect ON COMMIT DROP AS SELECT e.* FROM shop_jobeffect e "
    "WHERE e.tenant_id = ANY(%(tenants)s) OR e.tenant_seen = ANY(%(tenants)s) OR e.job_id IN (SELECT id FROM run_job)",
    "ANALYZE run_job",
    "ANALYZE run_effect",
)

# -- the file: orders hold exactly its good rows

_COLUMNS = "line, number, customer_email, placed_on, amount, currency"
_FILE = (
    (LOST, "good rows of the file are not orders", f"SELECT {_COLUMNS} FROM good_row EXCEPT ALL SELECT {_COLUMNS} FROM written"),
    (DUPLICATED, "orders are not good rows of the file, or are there twice",
     f"SELECT {_COLUMNS} FROM written EXCEPT ALL SELECT {_COLUMNS} FROM good_row"),
    (LOST, "bad rows of the file were not reported", "SELECT line FROM bad_row EXCEPT ALL SELECT line FROM reported"),
    (DUPLICATED, "rows were reported as bad that are not, or twice", "SELECT line FROM reported EXCEPT ALL SELECT line FROM bad_row"),
)  # fmt: skip
_PREPARE_FILE = (
    "CREATE TEMPORARY TABLE good_row (line int, number text, customer_email text, placed_on date, amount numeric, currency text) ON COMMIT DROP",
    "CREATE TEMPORARY TABLE bad_row (line int) ON COMMIT DROP",
    "CREATE TEMPORARY VIEW written AS SELECT * FROM shop_order WHERE upload_id = {upload_id}",
    "CREATE TEMPORARY VIEW reported AS SELECT * FROM shop_rejectedrow WHERE upload_id = {upload_id}",
)


def _file(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    _become(connection, expected.noisy)
    with connection.cursor() as cursor:
        for statement in _PREPARE_FILE:
            cursor.execute(statement.format(upload_id=int(expected.upload_id)))
        rows = list(expected.rows)
        good = [(r.line, r.order_number, r.customer_email, r.placed_on, r.amount, r.currency) for r in rows if not r.bad]
        _copy(cursor, f"COPY good_row ({_COLUMNS}) FROM STDIN", good)
        _copy(cursor, "COPY bad_row (line) FROM STDIN", [(row.line,) for row in rows if row.bad])
    for kind, sentence, sql in _FILE:
        yield Finding(kind, sentence, _count(connection, f"SELECT count(*) FROM ({sql}) rows", None))


def _copy(cursor: Any, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with cursor.copy(sql) as copy:
        for row in rows:
            copy.write_row(row)


# -- tenant tables, as each workspace sees them

_WRITTEN_BY_JOBS = ("shop_order", "shop_monthlyreport", "shop_passwordreset", "shop_webhookdelivery")
_SEEN = tuple(
    (WRONG_TENANT, f"rows of {table} were written by another workspace's job",
     f"SELECT count(*) FROM {table} row JOIN tenant_queue_job j ON j.id = row.job_id WHERE j.tenant_id IS DISTINCT FROM row.tenant_id")
    for table in _WRITTEN_BY_JOBS
) + (
    (WRONG_TENANT, "rows of another workspace are visible",
     f"SELECT count(*) FROM ({' UNION ALL '.join(f'SELECT tenant_id FROM {table}' for table in _WRITTEN_BY_JOBS)}) seen "
     "WHERE tenant_id IS DISTINCT FROM %(tenant)s"),
    (LOST, "report jobs succeeded without a report",
     "SELECT count(*) FROM run_job j WHERE j.tenant_id = %(tenant)s AND j.task = %(report)s AND j.status = 'succeeded' "
     "AND NOT EXISTS (SELECT FROM shop_monthlyreport r WHERE r.job_id = j.id)"),
    (DUPLICATED, "reports are more than one of their job",
     "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM shop_monthlyreport GROUP BY job_id) counted"),
    (LOST, "password resets have no message", "SELECT count(*) FROM shop_passwordreset WHERE sent_at IS NULL"),
    (LOST, "webhooks are not delivered", "SELECT count(*) FROM shop_webhookdelivery WHERE delivered_at IS NULL"),
)  # fmt: skip
_ALL_TABLES = (*_WRITTEN_BY_JOBS, "shop_orderupload", "shop_rejectedrow", "shop_webhookendpoint")


def _tenant_tables(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    """One finding for each sentence, over all workspaces; and nobody may see anything."""
    counts = dict.fromkeys(_SEEN, 0)
    for tenant in expected.tenants:
        _become(connection, tenant)
        for question in _SEEN:
            counts[question] += _count(connection, question[2], {"tenant": tenant, "report": generate_monthly_report.name})
    yield from (Finding(kind, sentence, count) for (kind, sentence, _), count in counts.items())
    _become(connection, "")
    seen = sum(_count(connection, f"SELECT count(*) FROM {table}", None) for table in _ALL_TABLES)
    yield Finding(WRONG_TENANT, "rows of tenant tables are visible to nobody in particular", seen)


def _become(connection: BaseDatabaseWrapper, tenant: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config(%s, %s, true)", [TENANT_SETTING, tenant])


def _count(connection: BaseDatabaseWrapper, sql: str, params: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return int(cursor.fetchone()[0])
