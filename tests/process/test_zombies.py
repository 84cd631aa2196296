"""Trees that were stopped and come back when others have their jobs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from django_tenant_queue import enqueue
from django_tenant_queue.models import Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, effects
from tests.process.project import tasks
from tests.waiting import eventually

LEASE = {"LEASE_SECONDS": 2, "RENEW_SECONDS": 0.5, "SWEEP_SECONDS": 0.3}


def test_zombie_does_not_commit(start_tree: StartTree, tmp_path: Path) -> None:
    """E01: a whole tree is stopped, another tree runs its job, the first goes on: its settle matches no row and rolls back."""
    job = enqueue(tasks.wait_for_file, {"path": str(tmp_path / "go")}, tenant_id="t")
    first = start_tree("--processes", "1", "--threads", "1", **LEASE)
    eventually(lambda: first.begun(), within=30)
    stopped = first.processes()
    for process in stopped:
        os.kill(process.pid, signal.SIGSTOP)
    second = start_tree("--processes", "1", "--threads", "1")
    eventually(lambda: [run.fence for run in second.begun()] == [1, 2], within=30)
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [job]), within=10)
    for process in stopped:
        os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: "this run's result is thrown away" in first.text(), within=10)
    assert [fence for fence, _ in effects(job)] == [2]
    assert (Job.objects.get().fence, Job.objects.get().interruptions) == (2, 1)
