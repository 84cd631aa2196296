"""The loop of the keepers: patient with silent stores, one line per change of state, stopped within a second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_tenant_queue import conf as configuration
from django_tenant_queue import enqueue, keepers, tenant_context
from django_tenant_queue.brokers.base import Broker
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.brokers.redis.clients import Patience
from django_tenant_queue.conf import Conf
from django_tenant_queue.exceptions import ScheduleError, ScheduleUnavailable
from django_tenant_queue.keepers.loop import Round
from django_tenant_queue.keepers.turns import _number, turn
from django_tenant_queue.models import Job
from django_tenant_queue.signals import keeper_failing, keeper_recovered
from embedded import Valkey
from tests import jobs
from tests.conftest import Clock, scheduler_settings
from tests.redis_servers import broker_of
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
HASTY = Patience(total_seconds=2.5, attempt_seconds=2.0)


class Troubled:
    """A keeper whose steps raise what they are told to."""

    name = "troubled"

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)

    def interval(self, conf: Conf) -> float:
        return 10.0

    def step(self, broker: Broker, conf: Conf) -> None:
        if self.errors and (error := self.errors.pop(0)):
            raise error


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What the signals said."""
    names: list[str] = []

    def failing(**facts: Any) -> None:
        names.append(f"failing: {type(facts['error']).__name__}")

    def recovered(**facts: Any) -> None:
        names.append("recovered")

    keeper_failing.connect(failing)
    keeper_recovered.connect(recovered)
    yield names
    keeper_failing.disconnect(failing)
    keeper_recovered.disconnect(recovered)


def test_trouble_is_one_line_and_one_signal_however_long_it_lasts(
    memory_broker: MemoryBroker, conf: Conf, heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    turns = Round(Troubled(*[ScheduleUnavailable()] * 50, None), memory_broker, conf)
    with caplog.at_level(logging.INFO, "django_tenant_queue"):
        for _ in range(52):
            turns.step()
    assert heard == ["failing: ScheduleUnavailable", "recovered"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


@pytest.mark.parametrize("error", [ScheduleUnavailable(), OperationalError("server closed the connection"), ZeroDivisionError()])
def test_a_failing_keeper_backs_off_with_jitter_and_a_cap(memory_broker: MemoryBroker, conf: Conf, error: Exception) -> None:
    turns = Round(Troubled(*[error] * 2000), memory_broker, conf)
    waits = [turns.step() for _ in range(2000)]
    assert min(waits) > 0
    assert max(waits) <= 2.0


def test_only_the_unexpected_brings_its_traceback(memory_broker: MemoryBroker, conf: Conf, caplog: pytest.LogCaptureFixture) -> None:
    for error in (OperationalError("down"), ZeroDivisionError()):
        Round(Troubled(error), memory_broker, conf).step()
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


def test_steps_of_many_hosts_do_not_keep_in_step(memory_broker: MemoryBroker, conf: Conf) -> None:
    waits = {Round(Troubled(), memory_broker, conf).step() for _ in range(20)}
    assert len(waits) > 10
    assert all(9 <= wait <= 11 for wait in waits)


@pytest.fixture
def running(memory_broker: MemoryBroker, conf: Conf) -> Iterator[Callable[[Broker, Conf], threading.Event]]:
    """Start all keepers in threads of this process."""
    stop, threads = threading.Event(), []

    def start(broker: Broker, conf: Conf) -> threading.Event:
        threads.append(threading.Thread(target=keepers.run, args=(keepers.all_keepers(), broker, conf, stop)))
        threads[0].start()
        return stop

    yield start
    stop.set()
    for thread in threads:
        thread.join(5)


def test_keepers_stop_within_a_second_and_leave_no_connection(
    memory_broker: MemoryBroker, conf: Conf, running: Callable[[Broker, Conf], threading.Event]
) -> None:
    stop = running(memory_broker, conf)
    eventually(lambda: memory_broker.read_epoch(), what="the relay opened the schedule")
    names = {"relay", "reaper", "reconciler"}
    began = time.monotonic()
    stop.set()
    eventually(lambda: not names & {thread.name for thread in threading.enumerate()}, within=1.0)
    assert time.monotonic() - began < 1.0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        assert cursor.fetchone() == (0,)


def test_jobs_enqueued_while_redis_is_down_are_published_when_it_is_back(
    private_valkey: Valkey, conf: Conf, clock: Clock, settings: Any, heard: list[str], running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C02, C09: one line, one signal, and nothing to be done by hand."""
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": private_valkey.url}
    settings.CACHES = {**settings.CACHES, conf.redis_alias: alias}
    broker = broker_of(configuration.get_conf(), scheduler_settings(conf, clock), HASTY)
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: broker)
    running(broker, conf)
    eventually(lambda: broker.read_epoch())
    private_valkey.kill()
    eventually(lambda: "failing: ScheduleUnavailable" in heard)
    with tenant_context("acme"):
        enqueue(jobs.leave_effect)
    private_valkey.start()
    eventually(lambda: waiting(broker) == 1, within=10)
    assert Job.objects.get().status == "queued"
    eventually(lambda: "recovered" in heard)


def waiting(broker: Broker) -> int | None:
    try:
        return broker.depths()["default"]["waiting"]
    except ScheduleError:
        return None


def test_a_keeper_that_loses_its_backend_opens_another(memory_broker: MemoryBroker, conf: Conf, running: Any) -> None:
    running(memory_broker, conf)
    eventually(lambda: memory_broker.read_epoch())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with tenant_context("acme"):
        job = enqueue(jobs.leave_effect, delay=0)
    eventually(lambda: Job.objects.get(pk=job.id).status == "queued", within=10)


def test_a_turn_is_one_process_at_a_time_and_ends_with_its_transaction(conf: Conf, another_backend: Any) -> None:
    other = another_backend()
    other.execute("BEGIN")
    other.execute("SELECT pg_try_advisory_xact_lock(%s)", [_number("relay", conf.namespace)])
    with turn("relay", conf) as mine, turn("reconciler", conf) as another:
        assert (mine, another) == (False, True)
    other.close()  # died

    def free() -> bool:
        with turn("relay", conf) as mine:
            return mine

    eventually(free)
