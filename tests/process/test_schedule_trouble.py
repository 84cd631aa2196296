"""A schedule that is away or silent under a running tree: running jobs settle, nothing is lost, work goes on by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_tenant_queue import enqueue
from django_tenant_queue.models import Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, repeated
from tests.process.project import tasks
from tests.process.redis_address import RedisAddress
from tests.process.tree import Tree
from tests.proxy import Proxy
from tests.waiting import eventually, never


@pytest.fixture
def proxy(sample_redis_url: str) -> Iterator[Proxy]:
    with Proxy(RedisAddress(sample_redis_url).target) as proxy:
        yield proxy


def _behind(proxy: Proxy, start_tree: StartTree, redis_url: str) -> Tree:
    """A tree that reaches Redis through the proxy, and has run a job."""
    tree = start_tree("--processes", "1", "--threads", "4", redis_url=RedisAddress(redis_url).through(proxy.port)).ready(1)
    first = enqueue(tasks.effect, {}, tenant_id="t")
    eventually(lambda: all_are("succeeded", [first]), within=20)
    return tree


def test_running_jobs_settle_while_redis_is_away(proxy: Proxy, start_tree: StartTree, sample_redis_url: str, tmp_path: Path) -> None:
    """A21, scaled: settle needs no Redis; the claimer comes back by itself."""
    tree = _behind(proxy, start_tree, sample_redis_url)
    running = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    eventually(lambda: len(tree.begun()) == 2, within=10)
    proxy.refuse()
    proxy.reset_all()
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [running]), within=10)
    later = [enqueue(tasks.effect, {}, tenant_id="t") for _ in range(5)]
    never(lambda: not all_are("queued", later), during=2)
    assert proxy.fired["refused"] > 0
    proxy.heal()
    eventually(lambda: all_are("succeeded", later), within=20)
    assert set(Job.objects.values_list("fence", "failures")) == {(1, 0)}
    assert not repeated()


def test_consumption_resumes_after_a_silent_connection(proxy: Proxy, start_tree: StartTree, sample_redis_url: str) -> None:
    """C17: every connection goes dead without a word; jobs run again without a restart."""
    _behind(proxy, start_tree, sample_redis_url)
    proxy.drop_silently()
    jobs = [enqueue(tasks.effect, {}, tenant_id="t") for _ in range(3)]
    eventually(lambda: all_are("succeeded", jobs), within=25)
    assert proxy.fired["silenced"] > 0
    assert not repeated()


def test_deaths_are_settled_while_redis_is_away(proxy: Proxy, start_tree: StartTree, sample_redis_url: str) -> None:
    """The lease keeper writes the ledger; lease and lane follow when Redis is back."""
    tree = _behind(proxy, start_tree, sample_redis_url)
    job = enqueue(tasks.nap, {"seconds": 1}, tenant_id="t")
    eventually(lambda: len(tree.begun()) == 2, within=10)
    proxy.refuse()
    proxy.reset_all()
    os.kill(tree.one("worker").pid, signal.SIGKILL)
    eventually(lambda: (Job.objects.get(pk=job.pk).status, Job.objects.get(pk=job.pk).crashes) == ("queued", 1), within=10)
    proxy.heal()
    eventually(lambda: all_are("succeeded", [job]), within=25)
