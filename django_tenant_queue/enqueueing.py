"""Crossing: capture -> record -> publish.

Order: the row is recorded in the caller's transaction; it is published when that has committed. If we die in between, or the
schedule does not answer, the relay publishes it. The envelope is captured and sealed when `enqueue` is called, never in the commit
callback.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from uuid_utils.compat import uuid7

from . import failpoints, logs
from .brokers.current import get_broker
from .conf import Conf, get_conf
from .context.current import Origin, actor_of, correlation_id_of, current_origin, new_correlation_id
from .context.database import as_queue_role
from .envelope import Envelope, tenant_id_of
from .exceptions import InvalidOption, InvalidPayload, MissingTenant, NotBuiltYet, ScheduleError, TenantMismatch
from .models import Job, Status
from .models.moves import Runnable
from .payload import dump
from .publishing import publish
from .registry import Task, cost_thousandths, registry
from .seal import seal

PUBLISH_PAUSE_SECONDS = 1.0
LANE_KEY_MAX_LENGTH = 512


def enqueue(
    task: Task[..., Any] | str,
    payload: Mapping[str, Any] | None = None,
    *,
    tenant_id: Any = None,
    actor_id: Any = None,
    actor_type: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    cost: float | None = None,
    delay: float | timedelta | None = None,
    run_after: datetime | timedelta | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> Job:
    """Record a job in the caller's transaction and publish it when that commits; works while Redis is down.

    `payload`: the task's arguments by name, JSON values only. Tenant, actor and correlation id come from the request, the running
    job or `tenant_context` unless given. `delay` seconds or `run_after` (aware datetime, or timedelta): not before that time.
    Raises UnknownTask, MissingTenant, InvalidTenant, TenantMismatch, InvalidPayload, InvalidOption, NotBuiltYet.
    """
    return enqueue_many(
        [(task, payload or {})],
        tenant_id=tenant_id,
        actor_id=actor_id,
        actor_type=actor_type,
        queue=queue,
        priority=priority,
        cost=cost,
        delay=delay,
        run_after=run_after,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
    )[0]


def enqueue_many(
    jobs: Iterable[tuple[Task[..., Any] | str, Mapping[str, Any]]],
    *,
    tenant_id: Any = None,
    actor_id: Any = None,
    actor_type: str | None = None,
    queue: str | None = None,
    priority: int = 0,
    cost: float | None = None,
    delay: float | timedelta | None = None,
    run_after: datetime | timedelta | None = None,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
) -> list[Job]:
    """enqueue() for many (task, payload) pairs: one INSERT, one publish; all or none. Options apply to every job."""
    if idempotency_key is not None:
        raise NotBuiltYet("enqueue(idempotency_key=...)")
    conf = get_conf()
    origin = _origin(tenant_id, actor_id, actor_type, correlation_id)
    due_at, delay_seconds = _due(delay, run_after)
    scheduled = delay_seconds is not None or due_at is not None
    now = timezone.now().astimezone(UTC)
    if delay_seconds is not None:
        due_at = now + timedelta(seconds=delay_seconds)  # what the caller sees; the row's is by the database's clock
    made = [
        _capture(
            conf, origin, task, payload, queue=queue, priority=_priority(priority), cost=cost, now=now, due_at=due_at, scheduled=scheduled
        )
        for task, payload in jobs
    ]
    if made:
        _record(conf, made, delay_seconds)
    return made


# -- capture


def _origin(tenant_id: Any, actor_id: Any, actor_type: str | None, correlation_id: str | None) -> Origin:
    """Whose job this is: what was passed, else what is in force here."""
    here = current_origin()
    tenant = here.tenant_id if here else None
    if tenant_id is not None:
        asked = tenant_id_of(tenant_id)
        if here and not here.system and tenant is not None and tenant != asked:
            raise TenantMismatch(tenant, asked)
        tenant = asked
    if actor_id is None and here is not None:
        actor, kind = actor_of(here.actor_id, actor_type or here.actor_type)
    else:
        actor, kind = actor_of(actor_id, actor_type or ("system" if actor_id is None else "user"))
    if correlation_id is not None:
        correlation = correlation_id_of(correlation_id)
    else:
        correlation = here.correlation_id if here else new_correlation_id()
    return Origin(tenant, actor, kind, correlation, here.trace if here else "")


def _priority(priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not -100 <= priority <= 100:
        raise InvalidOption("priority", priority, "it must be an integer from -100 to 100")
    return priority


def _due(delay: Any, run_after: Any) -> tuple[datetime | None, float | None]:
    """-> (absolute due time, or None; seconds from the database's now, or None)."""
    if delay is not None and run_after is not None:
        raise InvalidOption("run_after", run_after, "pass delay or run_after, not both")
    if run_after is None or isinstance(run_after, timedelta):
        wait, option = (delay, "delay") if run_after is None else (run_after, "run_after")
        return None, None if wait is None else _delay_seconds(wait, option)
    if not isinstance(run_after, datetime):
        raise InvalidOption("run_after", run_after, "it must be an aware datetime or a timedelta")
    if timezone.is_naive(run_after):
        raise InvalidOption("run_after", run_after, "it has no time zone; use django.utils.timezone")
    return run_after, None


def _delay_seconds(wait: Any, option: str) -> float:
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 366 * 86_400 * 10:
        raise InvalidOption(option, wait, "it must be seconds or a timedelta, from 0 to ten years")
    return float(seconds)


def _capture(conf: Conf, origin: Origin, task: Task[..., Any] | str, payload: Any, *, queue: str | None, priority: int, cost: float | None,
             now: datetime, due_at: datetime | None, scheduled: bool) -> Job:  # fmt: skip
    """One sealed job, not yet recorded. `due_at` None: now, or by the delay that record() is given."""
    found = task if isinstance(task, Task) else registry.get(task)
    registry.get(found.name)
    if not isinstance(payload, Mapping):
        raise InvalidPayload(f"it must be a dict of the task's arguments by name, not {type(payload).__name__}")
    if any(not isinstance(name, str) for name in payload):
        raise InvalidPayload("argument names must be strings")
    if found.tenant_scoped and origin.tenant_id is None:
        raise MissingTenant(found.name)
    name = queue or found.queue
    if name not in conf.queue_names:
        raise InvalidOption("queue", name, f"it is not one of TENANT_QUEUE['QUEUES']: {', '.join(conf.queue_names)}")
    envelope = Envelope(
        job_id=uuid7(),
        tenant_id=origin.tenant_id,
        actor_id=origin.actor_id,
        actor_type=origin.actor_type,
        task=found.name,
        payload=dump(found.bind((), payload), max_bytes=conf.payload_max_bytes, max_depth=conf.payload_max_depth),
        queue=name,
        priority=priority,
        cost=found.cost if cost is None else cost_thousandths(cost),
        enqueued_at=now,
        correlation_id=origin.correlation_id,
        trace=origin.trace,
    )
    return _job(conf, envelope, due_at=due_at or now, scheduled=scheduled)


def _job(conf: Conf, envelope: Envelope, *, due_at: datetime, scheduled: bool) -> Job:
    key_id, mac = seal(envelope)
    lane_key = conf.lane_key_of(envelope)
    if len(lane_key) > LANE_KEY_MAX_LENGTH:
        raise InvalidOption("LANE_KEY", lane_key, f"it has {len(lane_key)} characters; at most {LANE_KEY_MAX_LENGTH} are possible")
    values = {name: getattr(envelope, name) for name in _ENVELOPE_FIELDS}
    status = Status.SCHEDULED if scheduled else Status.QUEUED
    return Job(id=envelope.job_id, lane_key=lane_key, due_at=due_at, status=status.value, seal=mac, seal_key=key_id, **values)


_ENVELOPE_FIELDS = (
    "tenant_id",
    "actor_id",
    "actor_type",
    "task",
    "payload",
    "queue",
    "priority",
    "cost",
    "enqueued_at",
    "correlation_id",
    "trace",
)


# -- record, then publish


def _record(conf: Conf, jobs: Sequence[Job], delay_seconds: float | None) -> None:
    with as_queue_role(conf.database):
        Job.objects.using(conf.database).record(jobs, delays=[delay_seconds] * len(jobs))
    failpoints.hit("E1", task=jobs[0].task)
    runnable = [job for job in jobs if job.status == Status.QUEUED]
    rows = [Runnable(job.id, job.queue, job.lane_key, job.task, job.cost, job.priority, suspect=0) for job in runnable]
    if rows:
        # robust: another callback's error must not keep these from being published at once.
        # Not a partial: Django asks for its __qualname__.
        transaction.on_commit(lambda: _publish_committed(rows), using=conf.database, robust=True)


class _Breaker:
    """After a failed publish, leave publishing to the relay for a moment: requests must not each wait for a dead Redis."""

    def __init__(self) -> None:
        self.closed_until = 0.0

    @property
    def open(self) -> bool:
        return time.monotonic() >= self.closed_until

    def trip(self) -> None:
        self.closed_until = time.monotonic() + PUBLISH_PAUSE_SECONDS


_breaker = _Breaker()


def _publish_committed(rows: Sequence[Runnable]) -> None:
    """The commit has happened: nothing that fails here may reach the caller, the relay repairs it."""
    failpoints.hit("E2", task=rows[0].task)
    if not _breaker.open:
        return
    try:
        publish(get_broker(), rows)
    except ScheduleError as error:
        _breaker.trip()
        logs.publish_put_off(error)
        return
    failpoints.hit("E3", task=rows[0].task)
