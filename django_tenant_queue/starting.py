"""Crossing: claims -> started jobs. Order: the ledger starts (fenced), then the schedule confirms that the leases are still held.

Never begin with a lost lease: what lost its lease between claim and confirm goes back to queued by its fence, without penalty.
If the schedule is silent at confirm, a job begins only while less than LEASE - RENEW has passed since the claim was sent.
Claims that cannot be started are settled here, each by its row as it is now. If we die on the way, the leases expire: the reaper.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from . import failpoints, logs
from .brokers.base import Broker, Claim
from .conf import Conf
from .exceptions import ScheduleError
from .handback import HeldJob, hand_back, ledger, publish_or_leave
from .models import Status
from .models.moves import StartedJob, Unstarted

LOCKED_DELAY_SECONDS = 1.0


def start_claims(claims: Sequence[Claim], *, broker: Broker, conf: Conf, sent_at: float) -> list[StartedJob]:
    """Start what was claimed and return what may begin now. `sent_at`: monotonic seconds before the claim was sent.

    Raises what the database raises: then nothing was started for sure and the leases expire.
    """
    if not claims:
        return []
    failpoints.hit("D2")
    started = ledger(conf).start([(claim.job_id, claim.token, claim.queue, claim.lane_key) for claim in claims])
    if len(started) < len(claims):
        known = {job.id for job in started}
        _settle_unstarted([claim for claim in claims if claim.job_id not in known], broker, conf)
    failpoints.hit("D3")
    return _confirmed(started, broker, conf, sent_at)


def _confirmed(started: list[StartedJob], broker: Broker, conf: Conf, sent_at: float) -> list[StartedJob]:
    if not started:
        return []
    try:
        held = broker.renew([job.token for job in started])
    except ScheduleError as error:
        if time.monotonic() - sent_at < conf.lease_seconds - conf.renew_seconds:
            return started
        logs.schedule_trouble("confirm", error)
        held = frozenset()
    lost = [job for job in started if job.token not in held]
    if lost:
        for job in lost:
            logs.lost_lease(job.id, "before the body began")
        hand_back([HeldJob(job.id, job.fence, job.token, begun=False) for job in lost], broker=broker, penalty=False)
    return [job for job in started if job.token in held]


def _settle_unstarted(claims: Sequence[Claim], broker: Broker, conf: Conf) -> None:
    """Phantoms are released (refunded), locked rows postponed, rows running under a token that nobody leases taken back by token."""
    rows = ledger(conf).why_unstarted(claim.job_id for claim in claims)
    locked = [claim for claim in claims if _is_locked(claim, rows[claim.job_id])]
    phantoms = [claim for claim in claims if claim not in locked]
    for claim in phantoms:
        _tell(claim, rows[claim.job_id])
    try:
        if locked:
            broker.postpone([claim.token for claim in locked], LOCKED_DELAY_SECONDS)
        if phantoms:
            broker.release([claim.token for claim in phantoms])
            _republish([rows[claim.job_id] for claim in phantoms], broker, conf)
    except ScheduleError as error:
        logs.schedule_trouble("start", error)


def _is_locked(claim: Claim, row: Unstarted) -> bool:
    """Nothing is wrong with the row as it is now, so somebody held its lock (a zombie's settle, an operator)."""
    return row.status == Status.QUEUED and row.due and (row.queue, row.lane_key) == (claim.queue, claim.lane_key)


def _republish(rows: Sequence[Unstarted], broker: Broker, conf: Conf) -> None:
    """Phantoms' jobs that ought to be somewhere else: running under a lost lease, or queued in another lane."""
    running = [(row.job_id, row.claim_token) for row in rows if row.status == Status.RUNNING]
    if running:
        alive = broker.held(token for _, token in running)
        lost = ledger(conf).hand_back_tokens([(job_id, token) for job_id, token in running if token not in alive])
        publish_or_leave(lost, broker)
    queued: list[UUID] = [row.job_id for row in rows if row.status == Status.QUEUED and row.due]
    if queued:
        publish_or_leave(ledger(conf).queued_of(queued), broker)


def _tell(claim: Claim, row: Unstarted) -> None:
    if row.status is None:
        logs.stray_entry(claim.job_id, "the ledger has no such job")
    elif row.lane_key != claim.lane_key or row.queue != claim.queue:
        logs.lane_mismatch(claim.job_id, f"{claim.queue}/{claim.lane_key}", f"{row.queue}/{row.lane_key}")
    else:
        logs.stray_entry(claim.job_id, f"the job is {row.status}" + ("" if row.due else ", not due"))
