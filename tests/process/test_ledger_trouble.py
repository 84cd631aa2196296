"""A ledger that is full or gone, under a running tree: nothing is claimed for nothing, and work goes on afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_tenant_queue import enqueue
from django_tenant_queue.brokers.current import get_broker
from django_tenant_queue.models import Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, repeated
from tests.process.project import tasks
from tests.waiting import eventually, never


@pytest.fixture
def connection_limit(namespace: str) -> Iterator[None]:
    yield
    _limit(-1)


def _limit(count: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {connection.ops.quote_name(connection.settings_dict['NAME'])} CONNECTION LIMIT {count}")


def _end_other_backends() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone()[0]


def test_too_many_clients_means_no_claims(start_tree: StartTree, connection_limit: None) -> None:
    """D03: no connection to be had: the workers wait before they claim, no attempt and no lease is burnt, one clear line is logged."""
    tree = start_tree("--processes", "1", "--threads", "4").ready(1)
    first = enqueue(tasks.effect, {}, tenant_id="t")
    eventually(lambda: all_are("succeeded", [first]), within=10)
    _limit(0)
    assert _end_other_backends() > 0
    enqueue(tasks.effect, {}, tenant_id="probe")  # the claimer learns from this one that the ledger is gone, and gives it back
    eventually(lambda: "cannot use the ledger" in tree.text(), within=10)
    jobs = [enqueue(tasks.effect, {}, tenant_id="t") for _ in range(10)]
    never(lambda: set(get_broker().state().leases.values()) & {job.pk for job in jobs}, during=3)
    _limit(-1)
    eventually(lambda: all_are("succeeded", jobs), within=15)
    assert tree.text().count("claimer cannot use the ledger") == 1
    assert set(Job.objects.values_list("failures", "infrastructure", "interruptions", "crashes", "fence")) == {(0, 0, 0, 0, 1)}
    assert not repeated()


def test_lost_connections_are_made_again(start_tree: StartTree) -> None:
    """D02, scaled: every connection of an idle tree is ended; the next jobs run, with no failure counted."""
    start_tree("--processes", "1", "--threads", "4").ready(1)
    first = [enqueue(tasks.effect, {}, tenant_id="t") for _ in range(4)]
    eventually(lambda: all_are("succeeded", first), within=10)
    for _ in range(2):
        never(lambda: False, during=1.2, what="idle for long enough to be looked at")
        assert _end_other_backends() > 0
        jobs = [enqueue(tasks.effect, {}, tenant_id=f"t{i}") for i in range(8)]
        eventually(lambda jobs=jobs: all_are("succeeded", jobs), within=15)
    assert set(Job.objects.values_list("failures", "crashes")) == {(0, 0)}
    assert not repeated()
