"""Crossing: a process has died -> its jobs. Order and guards are those of handback.py and settle.py; every step may be repeated.

| the job | the death | becomes |
|---|---|---|
| past its hard deadline | ours: the lease keeper killed the process for it | a failure, `TimedOut` |
| begun | caused by nobody here | a crash when it was the only begun job, else a suspect |
| begun | ours: a neighbour's deadline, the end of the grace | queued again, an interruption |
| not begun | any | queued again, an interruption |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connections

from .. import logs
from ..brokers.base import Broker
from ..conf import Conf
from ..envelope import Outcome, OutcomeKind
from ..failure import fingerprint
from ..handback import HeldJob, hand_back, hand_back_suspects, ledger
from ..models import Status
from ..models.moves import StartedJob
from ..settle import acknowledge, settle
from .seats import describe_status
from .slots import SlotReading


@dataclass(frozen=True, slots=True)
class Death:
    """What the page said of a dead process. `status` as of os.waitpid, None when nobody could learn it."""

    pid: int
    status: int | None
    doomed: bool
    held: tuple[SlotReading, ...]

    @property
    def timed_out(self) -> list[SlotReading]:
        return [job for job in self.held if job.timed_out] if self.doomed else []

    @property
    def suspects(self) -> list[SlotReading]:
        return [] if self.doomed else [job for job in self.held if job.begun]

    @property
    def innocent(self) -> list[SlotReading]:
        guilty = [*self.timed_out, *self.suspects]
        return [job for job in self.held if job not in guilty]


def settle_death(death: Death, *, broker: Broker, conf: Conf) -> None:
    """Give back or record what the dead process held. Raises what the database raises; then call it again."""
    try:
        for job in death.timed_out:
            _record_timeout(job, broker, conf)
        if death.suspects:
            hand_back_suspects(_held(death.suspects), broker=broker, conf=conf, how=describe_status(death.status))
        if death.innocent:
            rows = hand_back(_held(death.innocent), broker=broker)
            if rows:
                logs.handed_back(len(rows), "their process died by no fault of theirs")
    except Exception:
        connections[conf.database].close()
        raise


def _held(readings: Sequence[SlotReading]) -> list[HeldJob]:
    return [HeldJob(job.job_id, job.fence, job.token, begun=job.begun) for job in readings]


def _record_timeout(reading: SlotReading, broker: Broker, conf: Conf) -> None:
    job = _running(reading.job_id, reading.fence, conf)
    if job is None:
        return
    logs.timed_out(job)
    message = "the job ran longer than its timeout, so its process was killed"
    outcome = Outcome(OutcomeKind.FAILED, error_class="TimedOut", message=message, fingerprint=fingerprint(f"TimedOut {job.envelope.task}"))
    settle(job, outcome, conf=conf)
    acknowledge(job, acks=broker)


def _running(job_id: UUID, fence: int, conf: Conf) -> StartedJob | None:
    row = ledger(conf).filter(pk=job_id, fence=fence, status=Status.RUNNING).first()
    if row is None:
        return None
    return StartedJob(
        row.envelope,
        row.lane_key,
        row.fence,
        row.claim_token,
        row.seal,
        row.seal_key,
        row.failures,
        row.crashes,
        row.suspect,
        row.infrastructure,
    )
