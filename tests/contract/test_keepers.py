"""Every keeper, over every broker: what each repairs, and that it repairs it once."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_tenant_queue import enqueue, enqueue_many, failpoints, tenant_context
from django_tenant_queue.brokers.base import Broker, LaneLimits
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.control import set_limits
from django_tenant_queue.keepers import Reaper, Reconciler, Relay
from django_tenant_queue.models import Job, TenantBudget
from tests import jobs, oracle
from tests.conftest import Clock
from tests.redis_servers import delete_namespace
from tests.workers import StepWorker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def relay(broker: Broker, conf: Conf) -> Relay:
    """A relay whose first pass opened the schedule."""
    relay = Relay()
    relay.step(broker, conf)
    return relay


def unpublished(count: int = 1, tenant: str = "acme", **options: object) -> list[Job]:
    """Committed and not published: the fault between commit and publish."""
    with failpoints.active("E2", "raise"), tenant_context(tenant):
        return [enqueue(jobs.leave_effect, **options) for _ in range(count)]


def waiting(broker: Broker) -> int:
    return sum(lane.waiting for lane in broker.state().lanes.values())


def test_the_first_pass_opens_an_empty_schedule(broker: Broker, conf: Conf) -> None:
    assert broker.read_epoch() is None
    Relay().step(broker, conf)
    epoch = broker.read_epoch()
    assert epoch is not None
    assert not epoch.rebuilding
    assert epoch.snapshot


def test_the_relay_publishes_what_was_committed_and_not_published(broker: Broker, conf: Conf, relay: Relay) -> None:
    (job,) = unpublished()
    assert waiting(broker) == 0
    relay.step(broker, conf)
    StepWorker(broker, conf).work_until_quiet()
    assert oracle.check([job.id], broker=broker) == []


def test_an_idle_pass_is_a_statement_or_two_and_one_call(broker: Broker, conf: Conf, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second statement is for transactions that ended since, of anybody in the database server."""
    relay.step(broker, conf)
    calls: list[str] = []
    for name in ("publish", "store_snapshot", "claim", "held"):
        monkeypatch.setattr(broker, name, lambda *args, name=name, **options: calls.append(name))
    with CaptureQueriesContext(connection) as queries:
        relay.step(broker, conf)
    assert len(queries) in (1, 2)
    assert calls == []


def test_due_rows_are_promoted_and_published_in_one_pass(broker: Broker, conf: Conf, relay: Relay) -> None:
    with tenant_context("acme"):
        now, later = enqueue(jobs.leave_effect, delay=0), enqueue(jobs.leave_effect, delay=3600)
    relay.step(broker, conf)
    assert waiting(broker) == 1
    assert Job.objects.get(pk=later.id).status == "scheduled"
    StepWorker(broker, conf).work_until_quiet()
    assert oracle.check([now.id], broker=broker) == []


def test_many_rows_due_at_once_are_promoted_in_batches(broker: Broker, conf: Conf, relay: Relay) -> None:
    """A15 (small): one due time, killed in the middle of the pass, and again; all promoted, none lost."""
    with tenant_context("acme"):
        due = enqueue_many([(jobs.leave_effect, {})] * 1200, delay=0)
    with failpoints.active("M2", "raise"), pytest.raises(failpoints.FailpointFired):
        relay.step(broker, conf)
    Relay().step(broker, conf)
    assert waiting(broker) == len(due) == Job.objects.filter(status="queued").count()


def test_a_row_refused_because_it_was_leased_is_offered_again(broker: Broker, conf: Conf, relay: Relay) -> None:
    """A run settled as "again at once" whose ack is late: the relay must not count the refusal as an offer."""
    (job,) = unpublished()
    relay.step(broker, conf)
    worker = StepWorker(broker, conf)
    (started,) = worker.start(worker.claim())
    Job.objects.retry(job.id, started.fence, after_seconds=0, error={"fence": 1}, began_at=None)
    relay.step(broker, conf)
    assert waiting(broker) == 0
    broker.ack([started.token])
    relay.step(broker, conf)
    assert waiting(broker) == 1


def test_two_relays_do_not_undo_each_other(broker: Broker, conf: Conf, relay: Relay) -> None:
    other = Relay()
    other.step(broker, conf)
    epoch = broker.read_epoch()
    for turn in (relay, other, other, relay, relay, other):
        unpublished()
        turn.step(broker, conf)
    assert waiting(broker) == 6
    assert epoch is not None
    assert broker.read_epoch().id == epoch.id  # type: ignore[union-attr]


def test_a_schedule_that_was_rolled_back_is_rebuilt(broker: Broker, conf: Conf, relay: Relay) -> None:
    """C03: Redis came back with what it held a while ago."""
    old = broker.read_epoch()
    assert old is not None
    assert old.snapshot is not None
    unpublished(2)
    relay.step(broker, conf)
    broker.store_snapshot(old.snapshot, epoch=old.id)
    relay.step(broker, conf)
    assert broker.read_epoch().id != old.id  # type: ignore[union-attr]
    assert waiting(broker) == 2


def test_a_schedule_filled_from_another_ledger_is_rebuilt(broker: Broker, conf: Conf, relay: Relay) -> None:
    old = broker.read_epoch()
    assert old is not None
    broker.store_snapshot("99999999999:99999999999:", epoch=old.id)
    unpublished()
    Relay().step(broker, conf)
    assert broker.read_epoch().id != old.id  # type: ignore[union-attr]
    assert waiting(broker) == 1


def test_the_reaper_hands_back_expired_runs_and_unstarted_claims(broker: Broker, conf: Conf, relay: Relay, clock: Clock) -> None:
    """A04, A05: claimed and not started is no interruption, and no crash; running is one interruption."""
    made = unpublished(2)
    relay.step(broker, conf)
    worker = StepWorker(broker, conf)
    (started,) = worker.start(worker.claim(1))
    worker.claim(1)
    clock.advance(conf.lease_seconds + 1)
    Reaper().step(broker, conf)
    assert waiting(broker) == 2
    counts = dict(Job.objects.values_list("id", "interruptions"))
    assert counts == {job.id: int(job.id == started.id) for job in made}
    worker.work_until_quiet()
    assert oracle.check([job.id for job in made], broker=broker) == []
    assert Job.objects.get(pk=started.id).fence == started.fence + 1


def test_a_sweep_killed_after_it_took_the_leases_loses_nothing(broker: Broker, conf: Conf, relay: Relay, clock: Clock) -> None:
    """A14 (small): the reaper dies after taking leases, again and again; the reconciler finds rows and entries."""
    made = unpublished(5)
    relay.step(broker, conf)
    worker = StepWorker(broker, conf)
    worker.start(worker.claim(3))
    worker.claim(2)
    clock.advance(conf.lease_seconds + 1)
    with failpoints.active("M1", "raise"), pytest.raises(failpoints.FailpointFired):
        Reaper().step(broker, conf)
    Reaper().step(broker, conf)
    assert waiting(broker) == 0
    reconciler = Reconciler()
    again = reconciler.step(broker, conf)
    assert again == conf.lease_seconds
    assert waiting(broker) == 2  # those that never started are queued; running ones get a second look
    assert reconciler.step(broker, conf) is None
    worker.work_until_quiet()
    assert oracle.check([job.id for job in made], broker=broker) == []


def test_the_reconciler_leaves_a_start_in_progress_alone(broker: Broker, conf: Conf, relay: Relay) -> None:
    (job,) = unpublished()
    relay.step(broker, conf)
    worker, reconciler = StepWorker(broker, conf), Reconciler()
    (started,) = worker.start(worker.claim())
    assert [reconciler.step(broker, conf) for _ in range(3)] == [None, None, None]
    worker.run(started)
    assert oracle.check([job.id], broker=broker) == []


def test_the_reconciler_skips_a_row_whose_settle_is_under_way(
    broker: Broker, conf: Conf, relay: Relay, another_backend: Callable[[], psycopg.Connection]
) -> None:
    """E02 for the reconciler: the zombie holds the row's lock, and may win."""
    (job,) = unpublished()
    relay.step(broker, conf)
    worker, reconciler = StepWorker(broker, conf), Reconciler()
    (started,) = worker.start(worker.claim())
    broker.ack([started.token])
    reconciler.step(broker, conf)
    zombie = another_backend()
    with zombie.transaction():
        zombie.execute("UPDATE tenant_queue_job SET reason = '' WHERE id = %s", [job.id])
        assert reconciler.step(broker, conf) == conf.lease_seconds
    assert Job.objects.get(pk=job.id).status == "running"
    reconciler.step(broker, conf)
    assert Job.objects.get(pk=job.id).status == "queued"


def test_the_reconciler_offers_limits_that_did_not_reach_the_schedule(broker: Broker, conf: Conf, relay: Relay) -> None:
    made = unpublished(4)
    relay.step(broker, conf)
    TenantBudget.objects.create(tenant_id="acme", max_running=1)
    Reconciler().step(broker, conf)
    assert len(StepWorker(broker, conf).claim()) == 1
    set_limits("acme", broker=broker, max_running=None)
    assert len(StepWorker(broker, conf).claim()) == len(made) - 1


def test_limits_and_leases_are_back_before_anything_is_claimed(broker: Broker, conf: Conf, relay: Relay, lose: Callable[[], None]) -> None:
    set_limits("acme", broker=broker, max_running=2)
    unpublished(5)
    relay.step(broker, conf)
    worker = StepWorker(broker, conf)
    assert len(worker.start(worker.claim())) == 2
    lose()
    Relay().step(broker, conf)
    assert worker.claim() == ()
    assert sum(lane.running for lane in broker.state().lanes.values()) == 2


@pytest.fixture
def lose(broker: Broker, conf: Conf) -> Callable[[], None]:
    """FLUSHALL, as far as this schedule is concerned."""

    def flush() -> None:
        if isinstance(broker, MemoryBroker):
            broker.lose()
        else:
            delete_namespace(conf.namespace)
        assert broker.read_epoch() is None

    return flush


REBUILD_STEPS = ["begin_rebuild", "set_limits", "restore_leases", "open_epoch", "publish", "store_snapshot"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", REBUILD_STEPS)
def test_a_rebuild_that_died_at_any_step_is_repaired(
    verb: str, when: str, broker: Broker, conf: Conf, relay: Relay, lose: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C01: the schedule is lost with queued, delayed and running jobs, and whoever rebuilds it dies at each step."""
    TenantBudget.objects.create(tenant_id="acme", max_running=50)
    made = unpublished(6) + unpublished(1, delay=0)
    relay.step(broker, conf)
    worker = StepWorker(broker, conf)
    running = worker.start(worker.claim(2))
    lose()
    died = die_once(broker, verb, when, monkeypatch)
    with pytest.raises(Died):
        Relay().step(broker, conf)
    Relay().step(broker, conf)
    assert died == [verb]
    assert waiting(broker) == len(made) - len(running)
    for job in running:
        worker.run(job)
    worker.work_until_quiet()
    assert oracle.check([job.id for job in made], broker=broker) == []
    assert all(job.interruptions == 0 for job in Job.objects.all())


class Died(Exception):
    pass


def die_once(broker: Broker, verb: str, when: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    real, died = getattr(broker, verb), []

    def dying(*args: object, **options: object) -> object:
        if died:
            return real(*args, **options)
        if when == "after":
            real(*args, **options)
        died.append(verb)
        raise Died

    monkeypatch.setattr(broker, verb, dying)
    return died


def test_a_row_made_runnable_while_the_rebuild_walks_is_not_missed(
    broker: Broker, conf: Conf, relay: Relay, lose: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = unpublished(3)
    lose()
    real = broker.open_epoch
    second: list[Job] = []

    def open_and_enqueue(epoch_id: str) -> None:
        real(epoch_id)
        second.extend(unpublished(2))

    monkeypatch.setattr(broker, "open_epoch", open_and_enqueue)
    fresh = Relay()
    fresh.step(broker, conf)
    fresh.step(broker, conf)
    assert waiting(broker) == len(first) + len(second) == 5


def test_limits_of_the_default_row_name_no_lane(broker: Broker, conf: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    TenantBudget.objects.create(tenant_id="*", max_running=1)
    TenantBudget.objects.create(tenant_id="acme", weight=2)
    told: dict[str, LaneLimits] = {}
    monkeypatch.setattr(broker, "set_limits", told.update)
    Relay().step(broker, conf)
    assert told == {"acme": LaneLimits(weight=2000)}


def test_rows_of_an_open_transaction_are_published_when_it_ends(broker: Broker, conf: Conf, relay: Relay) -> None:
    with transaction.atomic():
        unpublished()
    relay.step(broker, conf)
    assert waiting(broker) == 1
