"""The relay's exact difference: each row is published once after it becomes visible, however transactions overlap."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from uuid import UUID

import psycopg
import pytest

from django_tenant_queue import enqueue, enqueue_many, tenant_context
from django_tenant_queue.brokers.base import Publication
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.keepers import Relay
from django_tenant_queue.models import Job
from django_tenant_queue.models.walks import look, newly_runnable, queued_up_to
from tests import jobs

pytestmark = pytest.mark.django_db(transaction=True)
Backends = Callable[[], psycopg.Connection]
MAKE_RUNNABLE = "UPDATE tenant_queue_job SET status = 'queued', xid = pg_current_xact_id()::text::bigint WHERE id = %s"


@pytest.fixture
def published(memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Ids in the order in which they were offered to the schedule."""
    offered: list[UUID] = []
    real = memory_broker.publish

    def publish(publications: list[Publication], **options: str) -> object:
        offered.extend(publication.job_id for publication in publications)
        return real(publications, **options)

    monkeypatch.setattr(memory_broker, "publish", publish)
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)
    return offered


def far_jobs(count: int) -> list[Job]:
    with tenant_context("acme"):
        return [enqueue(jobs.leave_effect, delay=3600) for _ in range(count)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_overlapping_transactions_are_each_published_once(
    order: tuple[int, ...], memory_broker: MemoryBroker, conf: Conf, published: list[UUID], another_backend: Backends
) -> None:
    """Three transactions write one after the other and commit in every order, with a pass of the relay between any two events."""
    rows, backends, relay = far_jobs(3), [another_backend() for _ in range(3)], Relay()
    relay.step(memory_broker, conf)
    for row, backend in zip(rows, backends, strict=True):
        backend.execute("BEGIN")
        backend.execute(MAKE_RUNNABLE, [row.id])
        relay.step(memory_broker, conf)
    assert published == []
    for done, index in enumerate(order, start=1):
        backends[index].execute("COMMIT")
        relay.step(memory_broker, conf)
        assert published == [rows[number].id for number in order[:done]]
    relay.step(memory_broker, conf)
    Relay().step(memory_broker, conf)  # another process, that knows only what is stored
    assert len(published) == 3


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_rolled_back_transaction_hides_nothing(
    order: tuple[int, ...], memory_broker: MemoryBroker, conf: Conf, published: list[UUID], another_backend: Backends
) -> None:
    rows, backends, relay = far_jobs(3), [another_backend() for _ in range(3)], Relay()
    relay.step(memory_broker, conf)
    for row, backend in zip(rows, backends, strict=True):
        backend.execute("BEGIN")
        backend.execute(MAKE_RUNNABLE, [row.id])
    for index in order:
        backends[index].execute("ROLLBACK" if index == 1 else "COMMIT")
        relay.step(memory_broker, conf)
    assert sorted(published) == sorted([rows[0].id, rows[2].id])


def test_a_transaction_open_for_long_does_not_make_others_be_read_again(
    memory_broker: MemoryBroker, conf: Conf, published: list[UUID], another_backend: Backends
) -> None:
    (late,), long, relay = far_jobs(1), another_backend(), Relay()
    relay.step(memory_broker, conf)
    long.execute("BEGIN")
    long.execute(MAKE_RUNNABLE, [late.id])
    before = look(conf.database).snapshot
    with tenant_context("acme"):
        others = [enqueue(jobs.leave_effect) for _ in range(20)]
        for _ in range(3):
            relay.step(memory_broker, conf)
    pages = list(newly_runnable(conf.database, look(conf.database).snapshot.since(before)))
    assert [row.job_id for page in pages for row in page] == [job.id for job in others]
    published.clear()
    long.execute("COMMIT")
    relay.step(memory_broker, conf)
    relay.step(memory_broker, conf)
    assert published == [late.id]


def test_a_late_commit_is_found_by_a_relay_that_knows_only_the_stored_snapshot(
    memory_broker: MemoryBroker, conf: Conf, published: list[UUID], another_backend: Backends
) -> None:
    (late,), long, relay = far_jobs(1), another_backend(), Relay()
    long.execute("BEGIN")
    long.execute(MAKE_RUNNABLE, [late.id])
    relay.step(memory_broker, conf)
    with tenant_context("acme"):
        enqueue(jobs.leave_effect)
    relay.step(memory_broker, conf)
    published.clear()
    long.execute("COMMIT")
    Relay().step(memory_broker, conf)
    assert published == [late.id]


def test_a_large_difference_is_read_in_pages_along_the_index(memory_broker: MemoryBroker, conf: Conf, published: list[UUID]) -> None:
    Relay().step(memory_broker, conf)
    before = look(conf.database).snapshot
    with tenant_context("acme"):
        made = enqueue_many([(jobs.leave_effect, {})] * 250)
    now = look(conf.database).snapshot
    pages = list(newly_runnable(conf.database, now.since(before), page=100))
    assert [len(page) for page in pages] == [100, 100, 50]
    assert [row.job_id for page in pages for row in page] == sorted(job.id for job in made)
    assert sum(map(len, queued_up_to(conf.database, now.xmax, page=100))) == 250


def test_nothing_is_stored_before_every_row_was_answered_for(
    memory_broker: MemoryBroker, conf: Conf, published: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """M2: the relay dies between two pages; the next one offers both."""
    relay = Relay()
    relay.step(memory_broker, conf)
    stored = memory_broker.read_epoch()
    with tenant_context("acme"):
        made = enqueue_many([(jobs.leave_effect, {})] * 5)
    published.clear()

    class Died(Exception):
        pass

    def die(*args: object, **options: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(memory_broker, "publish", die)
        with pytest.raises(Died):
            relay.step(memory_broker, conf)
    assert memory_broker.read_epoch() == stored
    relay.step(memory_broker, conf)
    assert sorted(published) == sorted(job.id for job in made)
    assert memory_broker.read_epoch() != stored
