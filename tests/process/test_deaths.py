"""Dead processes: whose jobs run again, how soon, and who is to blame."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from django_tenant_queue import enqueue, failpoints
from django_tenant_queue.failpoints import Rule, as_text
from django_tenant_queue.models import DeadLetter, Job
from tests.process.conftest import StartTree
from tests.process.jobs import all_are, effects, repeated, statuses
from tests.process.project import tasks
from tests.process.tree import Tree
from tests.waiting import eventually, never

SHORT_LEASE = {"LEASE_SECONDS": 3, "RENEW_SECONDS": 1, "SWEEP_SECONDS": 0.3}


def test_only_the_killed_childs_jobs_run_again(start_tree: StartTree, tmp_path: Path) -> None:
    """A18: kill -9 of one of two workers; its begun jobs are suspects and run again each in a process of its own, the others are
    not disturbed, and the child is replaced."""
    path = str(tmp_path / "go")
    jobs = [enqueue(tasks.wait_for_file, {"path": path}, tenant_id=f"t{i}") for i in range(8)]
    tree = start_tree("--processes", "2", "--threads", "4")
    eventually(lambda: len(tree.begun()) == 8, within=30)
    killed = tree.processes("worker")[0]
    hit = {run.job_id for run in tree.begun() if run.pid == killed.pid}
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: {run.job_id for run in tree.begun() if run.fence == 2} == hit, within=10)
    assert len({run.pid for run in tree.begun() if run.fence == 2}) == len(hit) == 4
    eventually(lambda: len(tree.processes("worker")) == 2, what="the child is replaced")
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", jobs), within=10)
    assert [job.fence for job in Job.objects.filter(pk__in=hit)] == [2] * 4
    assert not repeated()
    assert not DeadLetter.objects.exists()


def test_jobs_are_back_within_a_second(start_tree: StartTree) -> None:
    """P4: the ledger says queued, or running again, within a second of the death: long before a lease could expire."""
    tree = start_tree("--processes", "1", "--threads", "1", LEASE_SECONDS=60, RENEW_SECONDS=2)
    job = enqueue(tasks.nap, {"seconds": 60}, tenant_id="t")
    eventually(lambda: tree.begun(), within=30)
    os.kill(tree.one("worker").pid, signal.SIGKILL)
    eventually(lambda: Job.objects.get(pk=job.pk).crashes == 1, within=3, what="one second, and room for a busy machine")
    eventually(lambda: len(tree.begun()) == 2, within=10)


@pytest.mark.parametrize("place", ["D1", "D2"])
def test_death_between_claim_and_start_costs_nothing(start_tree: StartTree, tmp_path: Path, place: str) -> None:
    """A04, A05: claimed and not started: the lease expires, the job runs once, nothing is counted."""
    tree, job = _run_with_fault(start_tree, tmp_path, place, "effect")
    assert (job.status, job.fence, job.crashes, job.failures, job.interruptions) == ("succeeded", 1, 0, 0, 0), tree.text()
    assert len(effects(job)) == 1


def test_death_between_start_and_body_is_an_interruption(start_tree: StartTree, tmp_path: Path) -> None:
    """A06: started and the body not begun: no crash, no failure; the next fence is one more."""
    tree, job = _run_with_fault(start_tree, tmp_path, "D3", "effect")
    assert (job.status, job.fence, job.crashes, job.failures, job.interruptions) == ("succeeded", 2, 0, 0, 1), tree.text()
    assert effects(job)[0][0] == 2


@pytest.mark.parametrize("place", ["H1", "H2", "H3"])
def test_death_in_a_body_leaves_one_effect(start_tree: StartTree, tmp_path: Path, place: str) -> None:
    """A07, A08: the first run's rows are rolled back; the job ran alone, so its death is a crash and it runs again apart."""
    tree, job = _run_with_fault(start_tree, tmp_path, place, "effect")
    assert (job.status, job.fence, job.crashes, job.suspect) == ("succeeded", 2, 1, 0), tree.text()
    assert [fence for fence, _ in effects(job)] == [2]


def test_death_before_a_failure_is_recorded_is_a_suspect(start_tree: StartTree, tmp_path: Path) -> None:
    """A11: rolled back and not recorded: no failure is counted, the death is, and the next run is in a process of its own."""
    tree, job = _run_with_fault(start_tree, tmp_path, "F1", "fail")
    assert (job.status, job.fence, job.crashes, job.failures) == ("dead", 2, 1, 1), tree.text()


def test_death_after_the_failure_is_recorded(start_tree: StartTree, tmp_path: Path) -> None:
    """A12, A13: the row says what happened; the process's death counts for nothing."""
    tree, job = _run_with_fault(start_tree, tmp_path, "F3", "fail")
    assert (job.status, job.fence, job.crashes, job.failures) == ("dead", 1, 0, 1), tree.text()


def test_death_after_commit_is_no_second_run(start_tree: StartTree, tmp_path: Path) -> None:
    """A10: succeeded in the ledger, its lease left behind: ended, and nothing runs again."""
    tree, job = _run_with_fault(start_tree, tmp_path, "H5", "effect")
    assert (job.status, job.fence, job.crashes) == ("succeeded", 1, 0), tree.text()
    assert len(effects(job)) == 1


def _run_with_fault(start_tree: StartTree, tmp_path: Path, place: str, task: str) -> tuple[Tree, Job]:
    """Run one job in a tree whose process dies once at `place`; the fault has fired when this returns."""
    job = enqueue(f"tests.process.project.tasks.{task}", {}, tenant_id="t")
    env = {failpoints.VARIABLE: as_text([Rule(place, "exit9", nth=1, counters=tmp_path)])}
    tree = start_tree("--burst", "--processes", "1", "--threads", "2", env=env, **SHORT_LEASE)
    assert tree.wait(40) == 0, tree.text()
    assert len(failpoints.fired(tmp_path, place)) == 1
    job.refresh_from_db()
    return tree, job


def test_the_third_kill_is_a_dead_letter(start_tree: StartTree) -> None:
    """G01: crashes are counted, each further run is in a process of its own, the third is the last, the dead letter names the signal."""
    job = enqueue(tasks.die, {"how": "kill"}, tenant_id="t")
    tree = start_tree("--burst", "--processes", "1", "--threads", "2")
    assert tree.wait(40) == 0, tree.text()
    letter = DeadLetter.objects.get(job=job)
    job.refresh_from_db()
    assert (job.status, job.crashes, job.failures, letter.reason) == ("dead", 3, 0, "crashed")
    assert "signal 9 (SIGKILL)" in letter.message
    assert [run.fence for run in tree.begun(job.pk)] == [1, 2, 3]
    assert len({run.pid for run in tree.begun(job.pk)}) == 3
    assert not effects(job)


def test_every_way_to_die_is_named(start_tree: StartTree) -> None:
    """G01: exit, abort, segmentation fault, recursion without end in C: each a dead letter that says how; the worker is not hurt."""
    ways = {
        "exit": "exit status 1",
        "exit0": "exit status 0",
        "abort": "SIGABRT",
        "segfault": "SIGSEGV",
        "recursion": "SIGSEGV",
        "kill": "SIGKILL",
    }
    jobs = {how: enqueue(tasks.die, {"how": how}, tenant_id=how) for how in ways}
    Job.objects.update(crashes=1)  # they have killed once: from now on each runs apart
    tree = start_tree("--processes", "1", "--threads", "2").ready(1)
    worker = tree.one("worker")
    eventually(lambda: all_are("dead", jobs.values()), within=30)
    told = {how: DeadLetter.objects.get(job=job).message for how, job in jobs.items()}
    assert {how: told[how] for how, name in ways.items() if name not in told[how]} == {}
    assert tree.one("worker") == worker


def test_neighbours_of_a_killer_run_again_without_penalty(start_tree: StartTree, tmp_path: Path) -> None:
    """G01: those that had begun are suspects, run apart and succeed; the killer is found out alone."""
    path = str(tmp_path / "go")
    neighbours = [enqueue(tasks.wait_for_file, {"path": path}, tenant_id=f"t{i}") for i in range(3)]
    killer = enqueue(tasks.die_while_neighbours_run, {"how": "kill", "path": path}, tenant_id="killer")
    tree = start_tree("--burst", "--processes", "1", "--threads", "4")
    eventually(lambda: len(tree.begun()) == 4, within=30)
    (tmp_path / "go").touch()
    assert tree.wait(40) == 0, tree.text()
    assert statuses([killer, *neighbours]) == ["dead", *["succeeded"] * 3]
    assert {(job.failures, job.crashes) for job in Job.objects.filter(pk__in=[job.pk for job in neighbours])} == {(0, 0)}
    assert not repeated()


def test_a_job_past_its_timeout_is_a_failure(start_tree: StartTree, tmp_path: Path) -> None:
    """The only hard limit is killing the process: the job has failed, and its neighbours run again without penalty."""
    path = str(tmp_path / "go")
    late = enqueue(tasks.too_long, {}, tenant_id="late")
    neighbour = enqueue(tasks.wait_for_file, {"path": path}, tenant_id="t")
    start_tree("--processes", "1", "--threads", "2", MAX_RETRIES=0)
    eventually(lambda: all_are("dead", [late]), within=30)
    late.refresh_from_db()
    assert (late.failures, late.crashes, late.suspect) == (1, 0, 0)
    assert DeadLetter.objects.get(job=late).error_class == "TimedOut"
    (tmp_path / "go").touch()
    eventually(lambda: all_are("succeeded", [neighbour]), within=10)
    neighbour.refresh_from_db()
    assert (neighbour.failures, neighbour.crashes, neighbour.suspect, neighbour.interruptions) == (0, 0, 0, 1)


def test_workers_that_die_at_once_are_no_storm_of_forks(start_tree: StartTree, tmp_path: Path) -> None:
    """B08: after five early deaths less than one fork a second; the tree still ends when it is told to."""
    env = {failpoints.VARIABLE: as_text([Rule("S1", "exit9", counters=tmp_path)])}
    tree = start_tree("--processes", "1", "--threads", "1", env=env)
    eventually(lambda: len(failpoints.fired(tmp_path, "S1")) >= 5, within=30)
    never(lambda: len(failpoints.fired(tmp_path, "S1")) > 7, during=2.5)
    tree.signal(signal.SIGTERM)
    assert tree.wait(10) == 0


def test_lease_keeper_that_dies_of_a_death_leaves_it_to_the_next(start_tree: StartTree, tmp_path: Path) -> None:
    """A death seen and not yet handled: what the dead process held stands in the page, and the next lease keeper reads it."""
    env = {failpoints.VARIABLE: as_text([Rule("S2", "exit9", nth=1, counters=tmp_path)])}
    job = enqueue(tasks.nap, {"seconds": 60}, tenant_id="t")
    tree = start_tree("--processes", "1", "--threads", "1", env=env, LEASE_SECONDS=60)
    eventually(lambda: tree.begun(), within=30)
    os.kill(tree.one("worker").pid, signal.SIGKILL)
    eventually(lambda: [run.fence for run in tree.begun()] == [1, 2], within=10)
    assert len(failpoints.fired(tmp_path, "S2")) >= 1
    assert Job.objects.get(pk=job.pk).crashes == 1


def test_worker_that_dies_while_draining_loses_nothing(start_tree: StartTree, tmp_path: Path) -> None:
    """Its begun job is queued again by the lease keeper, which ends after the workers; the exit code says so."""
    env = {failpoints.VARIABLE: as_text([Rule("S3", "exit9", nth=1, counters=tmp_path)])}
    job = enqueue(tasks.nap, {"seconds": 60}, tenant_id="t")
    tree = start_tree("--processes", "1", "--threads", "1", env=env, LEASE_SECONDS=60)
    eventually(lambda: tree.begun(), within=30)
    tree.signal(signal.SIGTERM)
    assert tree.wait(10) == 3
    assert len(failpoints.fired(tmp_path, "S3")) == 1
    assert statuses([job]) == ["queued"]
