"""Runs one started job: check the row, restore its context, run the body, settle, ack.

Order inside an atomic job: BEGIN, tenant settings, body, boundary check, fenced settle, COMMIT, callbacks, ack.
A body never aborts for a lost lease: the fence in settle decides. Nothing raised by a task leaves this module.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.utils import timezone

from .. import failpoints, logs
from ..conf import Conf
from ..context.current import Origin, use_job, use_origin
from ..context.database import broken_boundary, job_transaction, leave_role, marker_of, only_in_tenant_transaction, still_inside
from ..context.session import reset_after_job
from ..envelope import Outcome, OutcomeKind, RunningJob
from ..exceptions import BadSeal, Cancel, InvalidPayload, Retry, TransactionBoundaryBroken, UnknownSealKey, UnknownTask, UnreadablePayload
from ..failure import ErrorText, describe, secrets_of
from ..handback import ledger
from ..models.dead_letter import Reason
from ..models.moves import StartedJob
from ..payload import load
from ..registry import Task, registry
from ..seal import verify
from ..settle import Acknowledges, acknowledge, result_text, settle

# Not the task's fault: serialization failure and deadlock, connection lost, server going down, out of connections.
INFRASTRUCTURE_STATES = ("40001", "40P01", "57P01", "57P02", "57P03", "08000", "08001", "08003", "08004", "08006", "53300", "25006")


class Slot(Protocol):
    """The slot of the thread that runs the job, seen by the lease keeper."""

    def begin(self, deadline: float) -> None: ...
    def clear(self) -> None: ...


class _TakenOver(Exception):
    """The fenced settle matched no row and the boundary holds: another run has the job."""


class _Prepared:
    """A job whose row was checked: its task, its arguments, its deadline."""

    def __init__(self, job: StartedJob, conf: Conf) -> None:
        verify(job.envelope, job.seal_key, job.seal)
        self.task: Task[..., Any] = registry.get(job.envelope.task)
        self.arguments = load(job.envelope.payload)
        self.task.bind((), self.arguments)
        self.deadline = time.monotonic() + (self.task.timeout_seconds or conf.timeout_seconds)


def run_job(job: StartedJob, slot: Slot, *, acks: Acknowledges, conf: Conf) -> None:
    """Run a started job to its settled outcome. `slot` is occupied by this job and is cleared here.

    Call it in a fresh contextvars.Context, so that nothing a task sets is seen by the next job of this thread.
    """
    outcome = _attempt(job, slot, conf)
    if outcome is not None:
        if outcome.kind is not OutcomeKind.SUCCEEDED:
            failpoints.hit("F1", task=job.envelope.task)
        settle(job, outcome, conf=conf)
    failpoints.hit("H5", task=job.envelope.task)
    acknowledge(job, acks=acks)
    slot.clear()


def _attempt(job: StartedJob, slot: Slot, conf: Conf) -> Outcome | None:
    """-> what is still to be recorded; None when the body's own transaction recorded the success."""
    try:
        prepared = _Prepared(job, conf)
    except Exception as error:
        return _refusal(error)
    began_at = timezone.now()
    slot.begin(prepared.deadline)
    try:
        with _context_of(job, prepared, conf):
            run = _run_atomic if prepared.task.atomic else _run_autocommit
            return run(job, prepared, began_at, conf)
    except BaseException as error:  # also SystemExit, KeyboardInterrupt, GeneratorExit: a task must not end its thread
        return replace(_outcome_of(error, prepared.arguments), began_at=began_at)
    finally:
        slot.begin(float("inf"))  # what follows is ours and may wait for a database that is down
        _reset_connections()


@contextmanager
def _context_of(job: StartedJob, prepared: _Prepared, conf: Conf) -> Any:
    envelope = job.envelope
    origin = Origin(envelope.tenant_id, envelope.actor_id, envelope.actor_type, envelope.correlation_id, envelope.trace)
    running = RunningJob(
        envelope.job_id, job.fence, job.fence, envelope.tenant_id, envelope.actor_id, envelope.actor_type, envelope.correlation_id,
        envelope.task, envelope.queue, envelope.enqueued_at, prepared.deadline,
    )  # fmt: skip
    with use_origin(origin), use_job(running), only_in_tenant_transaction():
        yield


def _run_atomic(job: StartedJob, prepared: _Prepared, began_at: datetime, conf: Conf) -> Outcome | None:
    """Body and settle in one transaction. -> None: recorded."""
    envelope, connection = job.envelope, connections[conf.database]
    origin = Origin(envelope.tenant_id, envelope.actor_id, envelope.actor_type, envelope.correlation_id, envelope.trace)
    committed: list[bool] = []
    try:
        with job_transaction(conf.database, origin, marker_of(job.id, job.fence)) as boundary:
            # The first callback: whatever is raised after it comes from a later callback, not from COMMIT.
            transaction.on_commit(lambda: committed.append(True), using=conf.database)
            with _boundary_checked(connection, boundary):
                result = result_text(_body(prepared), max_bytes=conf.result_max_bytes)
                still_inside(connection, boundary)
            leave_role(connection)
            done = ledger(conf).succeed(
                job.id, job.fence, result=result, began_at=began_at, condition=boundary.condition, params=boundary.params
            )
            if not done:
                if broken := broken_boundary(connection, boundary):
                    raise TransactionBoundaryBroken(broken)
                raise _TakenOver
            failpoints.hit("H3", task=envelope.task)
    except BaseException as error:
        if not committed:
            raise
        logs.callback_failed(job, error)
    return None


@contextmanager
def _boundary_checked(connection: Any, boundary: Any) -> Any:
    """A body that committed by itself and then failed is not run again either: its writes are there."""
    try:
        yield
    except BaseException as error:
        broken = None if isinstance(error, TransactionBoundaryBroken) else _broken_after_error(connection, boundary)
        if broken is None:
            raise
        raise TransactionBoundaryBroken(broken) from error


def _broken_after_error(connection: Any, boundary: Any) -> str | None:
    try:
        return broken_boundary(connection, boundary)
    except Exception:
        return None  # the transaction failed, so it is rolled back as a whole


def _run_autocommit(job: StartedJob, prepared: _Prepared, began_at: datetime, conf: Conf) -> Outcome:
    result = result_text(_body(prepared), max_bytes=conf.result_max_bytes)
    return Outcome(OutcomeKind.SUCCEEDED, result=result, began_at=began_at)


def _body(prepared: _Prepared) -> Any:
    failpoints.hit("H1", task=prepared.task.name)
    value = prepared.task.function(**prepared.arguments)
    failpoints.hit("H2", task=prepared.task.name)
    return value


# -- error -> outcome


def _refusal(error: Exception) -> Outcome:
    """The row could not be prepared: nothing of the task has run."""
    text = describe(error)
    if isinstance(error, UnknownTask | UnknownSealKey):
        return _outcome(OutcomeKind.DEFERRED, text)
    if isinstance(error, BadSeal):
        return _outcome(OutcomeKind.DEAD, text, reason=Reason.BAD_SEAL)
    if isinstance(error, UnreadablePayload | InvalidPayload):
        return _outcome(OutcomeKind.DEAD, text, reason=Reason.UNREADABLE)
    return _outcome(OutcomeKind.FAILED, text)


def _outcome_of(error: BaseException, arguments: dict[str, Any]) -> Outcome:
    """What a body's exception means."""
    if isinstance(error, _TakenOver):
        return Outcome(OutcomeKind.SUPERSEDED)
    text = describe(error, secrets_of(arguments))
    if isinstance(error, Cancel):
        return _outcome(OutcomeKind.CANCELLED, text, reason=text.message)
    if isinstance(error, Retry):
        return _outcome(OutcomeKind.FAILED, text, after_seconds=error.after)
    if isinstance(error, TransactionBoundaryBroken):
        return _outcome(OutcomeKind.DEAD, text, reason=Reason.BOUNDARY)
    if _is_infrastructure(error):
        return _outcome(OutcomeKind.INFRASTRUCTURE, text)
    return _outcome(OutcomeKind.FAILED, text)


def _outcome(kind: OutcomeKind, text: ErrorText, *, reason: str = "", after_seconds: float | None = None) -> Outcome:
    return Outcome(
        kind,
        reason=str(reason),
        error_class=text.error_class,
        message=text.message,
        traceback=text.traceback,
        fingerprint=text.fingerprint,
        after_seconds=after_seconds,
    )


def _is_infrastructure(error: BaseException) -> bool:
    """A database error that says "again later", here or in what it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        state = getattr(current, "sqlstate", None) or getattr(current.__cause__, "sqlstate", None)
        if isinstance(current, DatabaseError) and (state in INFRASTRUCTURE_STATES or (state is None and _is_lost_connection(current))):
            return True
        current = current.__cause__
    return False


def _is_lost_connection(error: BaseException) -> bool:
    return type(error).__name__ in ("OperationalError", "InterfaceError")


def _reset_connections() -> None:
    """A connection the job left dirty or broken is thrown away; clean ones cost nothing."""
    for connection in connections.all(initialized_only=True):
        reset_after_job(connection)
