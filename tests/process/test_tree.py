"""The tree itself: each process may be killed or stopped, and the others go on, or end, as they should."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from django_tenant_queue import enqueue
from django_tenant_queue.brokers.current import get_broker
from django_tenant_queue.models import Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, repeated, statuses
from tests.process.project import tasks
from tests.waiting import eventually, never

LEASE = {"LEASE_SECONDS": 3, "RENEW_SECONDS": 1, "SWEEP_SECONDS": 0.3}


def test_stopped_supervisor_does_not_stop_renewals(start_tree: StartTree, tmp_path: Path) -> None:
    """B10, scaled: the lease keeper has a loop of its own."""
    job = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    tree = start_tree("--processes", "1", "--threads", "2", **LEASE)
    eventually(lambda: tree.begun(), within=30)
    os.kill(tree.pid, signal.SIGSTOP)
    never(lambda: len(tree.begun()) > 1 or not get_broker().state().leases, during=5, what="the lease ended")
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [job]), within=5)
    os.kill(tree.pid, signal.SIGCONT)
    job.refresh_from_db()
    assert job.fence == 1


def test_killed_lease_keeper_is_replaced_and_goes_on(start_tree: StartTree, tmp_path: Path) -> None:
    """Within a second, also while the supervisor is stopped; what it knows stands in the shared page."""
    job = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    tree = start_tree("--processes", "1", "--threads", "2", **LEASE)
    eventually(lambda: tree.begun(), within=30)
    os.kill(tree.pid, signal.SIGSTOP)
    before = tree.one("lease keepe")
    os.kill(before.pid, signal.SIGKILL)
    eventually(
        lambda: [p for p in tree.processes("lease keepe") if p.pid != before.pid], within=2, what="one second, and room for a busy machine"
    )
    never(lambda: len(tree.begun()) > 1, during=4, what="the lease ended")
    os.kill(tree.one("worker").pid, signal.SIGKILL)
    eventually(lambda: len(tree.begun()) == 2, within=5, what="the new one settles deaths, too")
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [job]), within=5)


def test_killed_supervisor_leaves_no_process(start_tree: StartTree) -> None:
    """A19: nothing is claimed any more, running jobs may end within the grace, no orphan is left after it."""
    short = enqueue(tasks.nap, {"seconds": 2}, tenant_id="t")
    long = enqueue(tasks.nap, {"seconds": 60}, tenant_id="u")
    tree = start_tree("--processes", "1", "--threads", "3", "--grace", "4")
    eventually(lambda: len(tree.begun()) == 2, within=30)
    os.kill(tree.pid, signal.SIGKILL)
    eventually(lambda: "supervisor has died" in tree.text(), within=2)
    waiting = enqueue(tasks.effect, {}, tenant_id="v")
    eventually(lambda: not tree.processes(), within=10, what="no process is left")
    assert statuses([short, long, waiting]) == ["succeeded", "queued", "queued"]


def test_killed_zygote_is_replaced_and_its_workers_drain(start_tree: StartTree, tmp_path: Path) -> None:
    """Running jobs of the orphaned workers end and settle, a new tree takes the work, and the old processes go."""
    job = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    tree = start_tree("--processes", "1", "--threads", "1", "--grace", "30", **LEASE)
    eventually(lambda: tree.begun(), within=30)
    old = tree.processes()
    os.kill(tree.one("zygote").pid, signal.SIGKILL)
    other = enqueue(tasks.effect, {}, tenant_id="u")
    eventually(lambda: all_are("succeeded", [other]), within=20)
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [job]), within=10)
    eventually(
        lambda: [p.pid for p in tree.processes() if p in old] == [tree.pid], within=10, what="only the supervisor is left of the old ones"
    )
    assert {job.fence for job in Job.objects.all()} == {1}
    tree.signal(signal.SIGTERM)
    assert tree.wait(10) == 0


def test_killed_keepers_are_replaced(start_tree: StartTree) -> None:
    tree = start_tree("--processes", "1", "--threads", "1").ready(1)
    before = tree.one("keepers")
    os.kill(before.pid, signal.SIGKILL)
    eventually(lambda: [p for p in tree.processes("keepers") if p != before], within=3)
    job = enqueue(tasks.fail_once, {}, tenant_id="t")
    eventually(lambda: all_are("succeeded", [job]), within=15, what="the relay promotes retries")


def test_bulk_leaves_slots_to_others(start_tree: StartTree) -> None:
    """A queue holds at most its share of a process's slots, however long its line; a job of another queue starts at once."""
    bulk = [enqueue(tasks.bulk_effect, {"seconds": 1.5}, tenant_id="noisy") for _ in range(8)]
    start_tree("--processes", "1", "--threads", "4")
    eventually(lambda: Job.objects.filter(status="running").count() == 2, within=20)
    quiet = enqueue(tasks.effect, {}, tenant_id="quiet")
    eventually(lambda: all_are("succeeded", [quiet]), within=1.4, what="it does not wait for a bulk job to end")
    never(lambda: Job.objects.filter(status="running", queue="bulk").count() > 2, during=1)
    eventually(lambda: all_are("succeeded", bulk), within=20)
    assert not repeated()


def test_idle_worker_is_woken_by_the_publish(start_tree: StartTree) -> None:
    """No polling: an idle tree starts a job in a fraction of the second that it would sleep."""
    start_tree("--processes", "2", "--threads", "2").ready(2)
    first = enqueue(tasks.effect, {}, tenant_id="t")
    eventually(lambda: all_are("succeeded", [first]), within=10)
    waits = []
    for _ in range(10):
        began = time.monotonic()
        job = enqueue(tasks.effect, {}, tenant_id="t")
        eventually(lambda job=job: all_are("succeeded", [job]), within=5)
        waits.append(time.monotonic() - began)
    assert sorted(waits)[5] < 0.3, waits
