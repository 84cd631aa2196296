"""Crossing: outcome -> ledger (fenced), then the lease ends by its token.

Order: ledger first, ack after. If we die in between, the lease expires and the reaper finds a row that is not running under that token.
A move that matches no row means that the job was taken over or is settled already: nothing is recorded, the lease ends all the same.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from django.db import DatabaseError, InterfaceError, OperationalError, connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from . import failpoints, logs
from .brokers.backoff import backoff_seconds
from .conf import Conf
from .envelope import Outcome, OutcomeKind
from .exceptions import InvalidResult, ScheduleError
from .handback import ledger
from .models.dead_letter import Reason
from .models.moves import StartedJob
from .registry import registry
from .retry import infrastructure_wait_seconds, wait_before_retry

DEFER_SECONDS = 10.0


class Acknowledges(Protocol):
    """What ends leases by token: a broker, or a worker's acks that gather."""

    def ack(self, tokens: Iterable[str]) -> object: ...


def result_text(value: Any, *, max_bytes: int) -> str | None:
    """A task's return value as JSON text; None stays None. Raises InvalidResult when it is not JSON or larger than `max_bytes`."""
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidResult(
            f"The task returned a {type(value).__name__} that is not JSON ({error}): return plain values, or None."
        ) from None
    if len(text) > max_bytes:
        raise InvalidResult(
            f"The task returned {len(text)} bytes of JSON; RESULT_MAX_BYTES allows {max_bytes}. Store it and return a reference."
        )
    return text


def settle(job: StartedJob, outcome: Outcome, *, conf: Conf) -> None:
    """Record the outcome, by the fence, in a transaction of its own.

    Tries again until the database answers: the slot stays occupied, so the lease is renewed meanwhile."""
    attempt = 0
    while True:
        try:
            return _record(job, outcome, conf)
        except (OperationalError, InterfaceError) as error:
            logs.ledger_trouble("settle", error)
            connections[conf.database].close()
            time.sleep(backoff_seconds(attempt))
            attempt += 1
        except DatabaseError as error:
            # Recording a failure must not be able to fail: a fixed text instead of whatever could not be stored.
            if outcome.error_class == "Unrecordable":
                raise
            logs.ledger_trouble("settle", error)
            outcome = Outcome(
                OutcomeKind.FAILED,
                error_class="Unrecordable",
                message="the outcome could not be stored",
                fingerprint="unrecordable",
                began_at=outcome.began_at,
            )


def acknowledge(job: StartedJob, *, acks: Acknowledges) -> None:
    """End the lease. When the schedule does not answer, the lease expires and the reaper ends it."""
    try:
        acks.ack([job.token])
    except ScheduleError as error:
        logs.schedule_trouble("ack", error)


def _record(job: StartedJob, outcome: Outcome, conf: Conf) -> None:
    recorded = _RECORDERS[outcome.kind](job, outcome, conf)
    if recorded:
        failpoints.hit("F2", task=job.envelope.task)
    else:
        logs.fence_lost(job)


def _succeeded(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    return ledger(conf).succeed(job.id, job.fence, result=outcome.result, began_at=outcome.began_at)


def _failed(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    wait = wait_before_retry(
        job.failures,
        max_retries=_max_retries(job, conf),
        asked_seconds=outcome.after_seconds,
        cap_seconds=conf.backoff_cap_seconds,
        random=random.random,
    )
    if wait is None:
        return _buried(job, outcome, conf, Reason.FAILED, failed=True)
    done = ledger(conf).retry(job.id, job.fence, after_seconds=wait, error=_error(job, outcome), began_at=outcome.began_at)
    if done:
        logs.failed(job, outcome.error_class, wait)
    return done


def _infrastructure(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    wait = infrastructure_wait_seconds(job.infrastructure, budget=conf.infrastructure_retries, random=random.random)
    if wait is None:
        return _buried(job, outcome, conf, Reason.INFRASTRUCTURE)
    done = ledger(conf).retry(
        job.id, job.fence, after_seconds=wait, error=_error(job, outcome), began_at=outcome.began_at, infrastructure=True
    )
    if done:
        logs.infrastructure(job, outcome.error_class, wait)
    return done


def _cancelled(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    done = ledger(conf).cancel_running(job.id, job.fence, reason=outcome.reason, began_at=outcome.began_at)
    if done:
        logs.cancelled(job, outcome.reason)
    return done


def _deferred(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    """Put back without counting, until UNKNOWN_TASK_SECONDS after it was first put back for this cause."""
    jobs = ledger(conf)
    first = next((e for e in jobs.errors_of(job.id) if e.get("class") == outcome.error_class), None)
    since = parse_datetime(first["at"]) if first else None
    if since is not None and (timezone.now() - since).total_seconds() > conf.unknown_task_seconds:
        return _buried(job, outcome, conf, Reason.UNKNOWN_TASK)
    errors = [] if first else [_error(job, outcome)]
    done = jobs.put_back(
        job.id, job.fence, after_seconds=min(DEFER_SECONDS, conf.unknown_task_seconds), reason=outcome.message[:500], errors=errors
    )
    if done:
        logs.deferred(job, outcome.message)
    return done


def _dead(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    return _buried(job, outcome, conf, outcome.reason)


def _superseded(job: StartedJob, outcome: Outcome, conf: Conf) -> bool:
    return False


def _buried(job: StartedJob, outcome: Outcome, conf: Conf, reason: str, *, failed: bool = False) -> bool:
    done = ledger(conf).bury(
        job.id, job.fence, reason=reason, error=_error(job, outcome), traceback=outcome.traceback, fingerprint=outcome.fingerprint,
        began_at=outcome.began_at, failed=failed,
    )  # fmt: skip
    if done:
        failpoints.hit("F3", task=job.envelope.task)
        logs.dead_letter(job, reason, outcome.error_class)
    return done


def _max_retries(job: StartedJob, conf: Conf) -> int:
    own = registry.get(job.envelope.task).max_retries
    return conf.max_retries if own is None else own


def _error(job: StartedJob, outcome: Outcome) -> dict[str, Any]:
    """One entry of the job's attempt history."""
    now: datetime = timezone.now()
    return {"fence": job.fence, "at": now.isoformat(), "kind": outcome.kind.value, "class": outcome.error_class, "message": outcome.message}


_RECORDERS = {
    OutcomeKind.SUCCEEDED: _succeeded,
    OutcomeKind.FAILED: _failed,
    OutcomeKind.INFRASTRUCTURE: _infrastructure,
    OutcomeKind.CANCELLED: _cancelled,
    OutcomeKind.DEFERRED: _deferred,
    OutcomeKind.DEAD: _dead,
    OutcomeKind.SUPERSEDED: _superseded,
}
