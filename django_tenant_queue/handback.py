"""Crossing: give unfinished jobs back. Order: ledger first (queued, guarded by fence or token), then the lease ends, then publish.

If we die after the ledger, the row is queued under a lease: the reaper takes the lease and publishes. If we die after the lease,
the row is queued and absent: the relay publishes it, its xid is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from . import failpoints, logs
from .brokers.base import Broker
from .conf import Conf, get_conf
from .exceptions import ScheduleError
from .failure import fingerprint
from .models import Job
from .models.dead_letter import Reason
from .models.moves import JobQuerySet, Runnable
from .publishing import publish


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job somebody held when they stopped: as its slot said. `begun`: its body had begun."""

    job_id: UUID
    fence: int
    token: str
    begun: bool


def ledger(conf: Conf | None = None) -> JobQuerySet:
    """The jobs of the configured database: always its primary, never what a router says."""
    return Job.objects.using((conf or get_conf()).database)


def hand_back(jobs: Iterable[HeldJob], *, broker: Broker, penalty: bool = True) -> list[Runnable]:
    """Interrupted by no fault of their own: queued again, in their lanes at once. -> the rows given back."""
    held = list(jobs)
    rows = ledger().hand_back([(job.job_id, job.fence) for job in held], penalty=penalty)
    end_leases(held, broker)
    publish_or_leave(rows, broker)
    return rows


def hand_back_suspects(jobs: Sequence[HeldJob], *, broker: Broker, conf: Conf, how: str) -> list[Runnable]:
    """Begun jobs of a process nobody here killed; `how` says how it died ("signal 11 (SIGSEGV)").

    A sole job has crashed; several are suspects, counted when one kills again. Either way each runs next in a fork of its own,
    from the head of its lane. The `max_crashes`-th kill is a dead letter. -> the rows given back.
    """
    if len(jobs) == 1:
        rows = _crashed(jobs[0], conf, how)
    else:
        logs.suspects(len(jobs), how)
        rows = ledger(conf).suspect_of([(job.job_id, job.fence) for job in jobs])
    end_leases(jobs, broker)
    publish_or_leave(rows, broker)
    return rows


def take_expired(limit: int, *, broker: Broker) -> int:
    """The reaper's step: take expired leases, then queued by token (an interruption), then publish whatever of them is queued.

    The ledger is asked first whether it is there. If we die after the take, running rows have a token that is not leased: the
    reconciler finds them. -> leases taken.
    """
    jobs = ledger()
    jobs.probe()  # a lease that is taken while the ledger is away leaves its job nowhere until the reconciler looks
    taken = broker.reap(limit)
    if not taken:
        return 0
    failpoints.hit("M1")
    rows = jobs.hand_back_tokens([(claim.job_id, claim.token) for claim in taken])
    known = {row.job_id for row in rows}
    rows += jobs.queued_of([claim.job_id for claim in taken if claim.job_id not in known])
    publish_or_leave(rows, broker)
    return len(taken)


def end_leases(jobs: Iterable[HeldJob], broker: Broker) -> None:
    """Begun runs pay for the seconds they held a slot, claims that never began are refunded. A dead schedule leaves them to the reaper."""
    begun = [job.token for job in jobs if job.begun]
    unbegun = [job.token for job in jobs if not job.begun]
    try:
        if begun:
            broker.ack(begun)
        if unbegun:
            broker.release(unbegun)
    except ScheduleError as error:
        logs.schedule_trouble("hand-back", error)


def publish_or_leave(rows: Sequence[Runnable], broker: Broker) -> None:
    """Publish queued rows; when the schedule does not answer they are left to the relay."""
    try:
        publish(broker, rows)
    except ScheduleError as error:
        logs.schedule_trouble("hand-back", error)


def _crashed(job: HeldJob, conf: Conf, how: str) -> list[Runnable]:
    error = {"class": "ProcessDied", "message": f"its process died: {how}", "at": timezone.now().isoformat(), "fence": job.fence}
    jobs = ledger(conf)
    with transaction.atomic(using=conf.database):
        rows = jobs.crash(job.job_id, job.fence, error=error, max_crashes=conf.max_crashes)
        dead = not rows and jobs.bury(
            job.job_id, job.fence, reason=Reason.CRASHED, error=error, traceback="", fingerprint=fingerprint(f"crashed {how}"), crashed=True
        )
    if rows or dead:
        logs.crashed(job.job_id, how, dead)
    return rows
