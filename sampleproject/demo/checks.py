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
from sampleproject.shop.tasks import decode_logo_natively, deliver_webhook, generate_monthly_report, measure_logo, send_password_reset

from . import questions
from .load import Asked
from .questions import DUPLICATED, LOST, WRONG_TENANT, Question

POISON_TASKS = [measure_logo.name, decode_logo_natively.name]


@dataclass(frozen=True, slots=True)
class Finding:
    """`count` things that are not as they should be."""

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
    """Everything that is wrong; empty when all is well. Reads in one transaction, which is rolled back."""
    with transaction.atomic(using=connection.alias):
        made = [*_of_jobs(connection, expected), *_of_file(connection, expected), *_of_tenant_tables(connection, expected)]
        transaction.set_rollback(True, using=connection.alias)
    return [finding for finding in made if finding.count]


def totals(findings: Iterable[Finding]) -> dict[str, int]:
    """lost, duplicated and wrong_tenant, also where they are 0."""
    counts = {LOST: 0, DUPLICATED: 0, WRONG_TENANT: 0}
    for finding in findings:
        counts[finding.kind] += finding.count
    return counts


def _of_jobs(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    params = {
        "tenants": list(expected.tenants),
        "correlation": [a.correlation_id for a in expected.asked],
        "asked_by": [a.tenant_id for a in expected.asked],
        "task": [a.task for a in expected.asked],
        "mailed": list(expected.mailed),
        "received": [job_id for job_id, _ in expected.received],
        "received_for": [workspace for _, workspace in expected.received],
        "poison": POISON_TASKS,
        "reset": send_password_reset.name,
        "webhook": deliver_webhook.name,
    }
    for statement in questions.MAKE_RUN_TABLES:
        _execute(connection, statement, params)
    for question in questions.OF_JOBS:
        yield Finding(question.kind, question.sentence, _count(connection, question, params))


def _of_file(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    _become(connection, expected.noisy)
    for statement in questions.MAKE_FILE_TABLES:
        _execute(connection, statement, {"upload": expected.upload_id})
    rows = list(expected.rows)
    good = [(r.line, r.order_number, r.customer_email, r.placed_on, r.amount, r.currency) for r in rows if not r.bad]
    _copy(connection, f"COPY good_row ({questions.COLUMNS}) FROM STDIN", good)
    _copy(connection, "COPY bad_row (line) FROM STDIN", [(r.line,) for r in rows if r.bad])
    for question in questions.OF_FILE:
        yield Finding(question.kind, question.sentence, _count(connection, question, {}))


def _of_tenant_tables(connection: BaseDatabaseWrapper, expected: Expected) -> Iterator[Finding]:
    """One finding for each question, over all workspaces; then what is seen by nobody in particular."""
    counts = dict.fromkeys(questions.OF_TENANT_TABLES, 0)
    for tenant in expected.tenants:
        _become(connection, tenant)
        for question in counts:
            counts[question] += _count(connection, question, {"tenant": tenant, "report": generate_monthly_report.name})
    yield from (Finding(question.kind, question.sentence, count) for question, count in counts.items())
    _become(connection, "")
    yield Finding(questions.OF_NOBODY.kind, questions.OF_NOBODY.sentence, _count(connection, questions.OF_NOBODY, {}))


def _become(connection: BaseDatabaseWrapper, tenant: str) -> None:
    _execute(connection, "SELECT set_config(%(name)s, %(tenant)s, true)", {"name": TENANT_SETTING, "tenant": tenant})


def _count(connection: BaseDatabaseWrapper, question: Question, params: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(question.sql, params)
        return int(cursor.fetchone()[0])


def _execute(connection: BaseDatabaseWrapper, sql: str, params: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def _copy(connection: BaseDatabaseWrapper, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(sql) as copy:
        for row in rows:
            copy.write_row(row)
