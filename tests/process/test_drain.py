"""Stopping: what the signals mean, what becomes of running jobs, and how the tree ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from django_tenant_queue import enqueue
from django_tenant_queue.brokers.current import get_broker
from django_tenant_queue.models import Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, effects, repeated, statuses
from tests.process.project import tasks
from tests.process.redis_address import RedisAddress
from tests.proxy import Proxy
from tests.waiting import eventually, never

DRAINED, HANDED_BACK = 0, 3


def test_burst_drains_and_exits_zero(start_tree: StartTree) -> None:
    jobs = [enqueue(tasks.effect, {}, tenant_id=f"t{i % 5}") for i in range(40)]
    tree = start_tree("--burst", "--processes", "2", "--threads", "4", by_command=True)
    assert tree.wait(30) == DRAINED, tree.text()
    assert all_are("succeeded", jobs)
    assert not repeated()


def test_burst_waits_for_retries_and_not_for_what_is_due_later(start_tree: StartTree) -> None:
    later = enqueue(tasks.effect, {}, tenant_id="t", delay=3600)
    failing = enqueue(tasks.fail_once, {}, tenant_id="t")
    tree = start_tree("--burst", "--processes", "1", "--threads", "2")
    assert tree.wait(30) == DRAINED, tree.text()
    assert statuses([later, failing]) == ["scheduled", "succeeded"]


def test_idle_tree_ends_within_two_seconds(start_tree: StartTree) -> None:
    """B01: an idle claimer is woken by the signal."""
    tree = start_tree("--processes", "2", "--threads", "2").ready(2)
    job = enqueue(tasks.effect, {}, tenant_id="t")
    eventually(lambda: all_are("succeeded", [job]), within=10)
    tree.signal(signal.SIGTERM)
    began = time.monotonic()
    assert tree.wait(5) == DRAINED
    assert time.monotonic() - began < 2
    assert not tree.processes()


def test_running_jobs_end_and_nothing_more_is_claimed(start_tree: StartTree) -> None:
    """B02: from the instant of the signal nothing is claimed; what runs may end within the grace."""
    tree = start_tree("--processes", "1", "--threads", "2", "--grace", "20")
    running = [enqueue(tasks.nap, {"seconds": 3}, tenant_id="t") for _ in range(2)]
    eventually(lambda: len(tree.begun()) == 2, within=20)
    tree.signal(signal.SIGTERM)
    eventually(lambda: "draining" in tree.text())
    waiting = [enqueue(tasks.effect, {}, tenant_id="t") for _ in range(5)]
    assert tree.wait(10) == DRAINED
    assert all_are("succeeded", running)
    assert all_are("queued", waiting)


def test_after_the_grace_jobs_are_handed_back_at_once(start_tree: StartTree) -> None:
    """B03: queued again, no failure and no crash counted, the exit code says so, and they are claimable at once."""
    tree = start_tree("--processes", "1", "--threads", "2", "--grace", "1")
    jobs = [enqueue(tasks.nap, {"seconds": 60}, tenant_id="t") for _ in range(2)]
    eventually(lambda: len(tree.begun()) == 2, within=20)
    tree.signal(signal.SIGTERM)
    assert tree.wait(6) == HANDED_BACK, tree.text()
    for job in jobs:
        job.refresh_from_db()
        assert (job.status, job.failures, job.crashes, job.suspect, job.interruptions) == ("queued", 0, 0, 0, 1)
    state = get_broker().state()
    assert not state.leases
    assert state.lanes["default", "t"].waiting == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_the_second_signal_hands_back_at_once(start_tree: StartTree, number: signal.Signals) -> None:
    """B05: the second SIGTERM or SIGINT is the fast stop, within a long grace."""
    tree = start_tree("--processes", "1", "--threads", "1", "--grace", "60")
    job = enqueue(tasks.nap, {"seconds": 60}, tenant_id="t")
    eventually(lambda: tree.begun(), within=20)
    tree.signal(number)
    never(lambda: tree.process.poll() is not None, during=0.5, what="it drains")
    tree.signal(number)
    assert tree.wait(4) == HANDED_BACK
    assert statuses([job]) == ["queued"]


def test_twenty_signals_in_a_second_are_a_fast_stop(start_tree: StartTree) -> None:
    """B05: no traceback storm, no deadlock in a handler; also when every process of the tree gets them, as from a service manager."""
    tree = start_tree("--processes", "2", "--threads", "2", "--grace", "60")
    jobs = [enqueue(tasks.nap, {"seconds": 60}, tenant_id="t") for _ in range(4)]
    eventually(lambda: len(tree.begun()) == 4, within=20)
    for _ in range(20):
        for process in tree.processes():
            os.kill(process.pid, signal.SIGTERM)
    assert tree.wait(6) == HANDED_BACK
    assert all_are("queued", jobs)
    assert "Traceback" not in tree.text()
    assert not tree.processes()


def test_hangup_drains_however_often(start_tree: StartTree, tmp_path: Path) -> None:
    """B05: SIGHUP is a drain and never more."""
    tree = start_tree("--processes", "1", "--threads", "1", "--grace", "60")
    job = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    eventually(lambda: tree.begun(), within=20)
    for _ in range(5):
        tree.signal(signal.SIGHUP)
    never(lambda: tree.process.poll() is not None, during=1)
    (tmp_path / "go").touch()
    assert tree.wait(5) == DRAINED
    assert statuses([job]) == ["succeeded"]


def test_quit_hands_back_at_once(start_tree: StartTree) -> None:
    """B05: SIGQUIT is the fast stop, and no core is dumped."""
    tree = start_tree("--processes", "1", "--threads", "1", "--grace", "60")
    job = enqueue(tasks.nap, {"seconds": 60}, tenant_id="t")
    eventually(lambda: tree.begun(), within=20)
    tree.signal(signal.SIGQUIT)
    tree.signal(signal.SIGQUIT)
    assert tree.wait(4) == HANDED_BACK
    assert statuses([job]) == ["queued"]


def test_signal_to_one_worker_drains_that_one(start_tree: StartTree) -> None:
    """Its running job ends, and another process takes its place."""
    tree = start_tree("--processes", "1", "--threads", "1")
    job = enqueue(tasks.nap, {"seconds": 1}, tenant_id="t")
    eventually(lambda: tree.begun(), within=20)
    worker = tree.one("worker")
    os.kill(worker.pid, signal.SIGTERM)
    eventually(lambda: tree.processes("worker") and worker not in tree.processes("worker"), within=5)
    assert statuses([job]) == ["succeeded"]
    assert len(effects(job)) == 1


def test_jobs_of_a_claim_in_flight_are_not_nowhere(start_tree: StartTree, settings: Any) -> None:
    """B04: the signal arrives between the schedule's pop and the worker's read; the job is run by the next tree at the latest."""
    redis = RedisAddress(settings.REDIS_URL)
    with Proxy(redis.target) as proxy:
        tree = start_tree("--processes", "1", "--threads", "1", redis_url=redis.through(proxy.port)).ready(1)
        first = enqueue(tasks.effect, {}, tenant_id="t")
        eventually(lambda: all_are("succeeded", [first]), within=20)
        proxy.latency_seconds = 0.4
        job = enqueue(tasks.effect, {}, tenant_id="t")
        eventually(lambda: _is_leased(job), within=5, what="the schedule has given the job away")
        tree.signal(signal.SIGTERM)
        assert tree.wait(20) in (DRAINED, HANDED_BACK), tree.text()
        assert proxy.fired["delayed"] > 0
    again = start_tree("--burst", "--processes", "1", "--threads", "1")
    assert again.wait(20) == DRAINED
    assert statuses([job]) == ["succeeded"]
    assert not repeated()


def _is_leased(job: Job) -> bool:
    return job.pk in get_broker().state().leases.values()
