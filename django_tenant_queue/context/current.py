"""Who is asking, and which job runs: two context variables, set and restored by `with` blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

from ..envelope import ACTOR_TYPES, RunningJob, tenant_id_of
from ..exceptions import InvalidOption, OutsideJob, TenantMismatch

CORRELATION_MAX_LENGTH = 128
ACTOR_MAX_LENGTH = 255
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request for work comes from. `system`: may enqueue for any tenant. `trace` is a W3C traceparent or ""."""

    tenant_id: str | None
    actor_id: str | None
    actor_type: str
    correlation_id: str
    trace: str = ""
    system: bool = False


class LazyOrigin:
    """An Origin that asks for tenant and actor when they are first needed: a request that enqueues nothing pays nothing.

    The two functions return checked values; what they raise reaches whoever needed the origin, and they are asked again the next time.
    """

    def __init__(
        self, tenant: Callable[[], str | None], actor: Callable[[], tuple[str | None, str]], correlation_id: str, trace: str
    ) -> None:
        self._tenant, self._actor = tenant, actor
        self.correlation_id, self.trace = correlation_id, trace

    @cached_property
    def tenant_id(self) -> str | None:
        with use_origin(None):  # a resolver that needs the origin itself would ask for ever
            return self._tenant()

    @cached_property
    def origin(self) -> Origin:
        tenant_id = self.tenant_id
        with use_origin(None):
            actor_id, actor_type = self._actor()
        return Origin(tenant_id, actor_id, actor_type, self.correlation_id, self.trace)


_origin: ContextVar[Origin | LazyOrigin | None] = ContextVar("django_tenant_queue.origin", default=None)
_job: ContextVar[RunningJob | None] = ContextVar("django_tenant_queue.job", default=None)


def current_origin() -> Origin | None:
    """Who is asking here; None outside requests, jobs and contexts.

    In a request the first call resolves tenant and actor, and raises what they raise.
    """
    held = _origin.get()
    return held.origin if isinstance(held, LazyOrigin) else held


def current_job() -> RunningJob:
    """The job that runs here. Never queries. Raises OutsideJob when none does."""
    job = _job.get()
    if job is None:
        raise OutsideJob()
    return job


def in_job() -> bool:
    """Whether a job runs here."""
    return _job.get() is not None


@contextmanager
def use_origin(origin: Origin | LazyOrigin | None) -> Iterator[None]:
    """Hold this origin in the block; nests; the one before comes back also after an exception."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


@contextmanager
def use_job(job: RunningJob | None) -> Iterator[None]:
    """Hold this job as the running one in the block."""
    token = _job.set(job)
    try:
        yield
    finally:
        _job.reset(token)


@contextmanager
def tenant_context(tenant: str | int | UUID, actor_id: str | int | UUID | None = None, actor_type: str = "system") -> Iterator[None]:
    """Act for a tenant outside requests and jobs (commands, shells, tests). Nests with the same tenant.

    Raises InvalidTenant; InvalidOption for a bad actor; TenantMismatch inside another tenant's context (system_context() leaves it).
    """
    tenant_id = tenant_id_of(tenant)
    actor_id, actor_type = actor_of(actor_id, actor_type)
    held = _origin.get()
    if held is not None and held.tenant_id is not None and held.tenant_id != tenant_id:
        raise TenantMismatch(held.tenant_id, tenant_id)
    with use_origin(Origin(tenant_id, actor_id, actor_type, *inherited_ids())):
        yield


def system_origin() -> Origin:
    """The origin inside system_context(): no tenant, may enqueue for any."""
    return Origin(None, None, "system", *inherited_ids(), system=True)


def inherited_ids() -> tuple[str, str]:
    """(correlation id, trace) of what surrounds this code, else a new correlation id. Resolves nothing."""
    held = _origin.get()
    return (new_correlation_id(), "") if held is None else (held.correlation_id, held.trace)


def new_correlation_id() -> str:
    return uuid4().hex


def correlation_id_of(value: object) -> str:
    """The value if it can be a correlation id, else a new one."""
    return valid_correlation_id(value) or new_correlation_id()


def valid_correlation_id(value: object) -> str | None:
    """The value if it is 1 to 128 printable ASCII characters, else None: an id from outside must not be able to break a log line."""
    if isinstance(value, str) and len(value) <= CORRELATION_MAX_LENGTH and value.isascii() and value.isprintable() and value.strip():
        return value
    return None


def trace_of(value: object) -> str:
    """The value if it is a W3C traceparent, else ""."""
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else ""


def actor_of(actor_id: Any, actor_type: Any) -> tuple[str | None, str]:
    """Checked (actor_id, actor_type): None or 1 to 255 printable characters (int and UUID by str()), one of ACTOR_TYPES.

    Raises InvalidOption.
    """
    if actor_type not in ACTOR_TYPES:
        raise InvalidOption("actor_type", actor_type, f"it must be one of {', '.join(ACTOR_TYPES)}")
    if actor_id is None:
        return None, actor_type
    if isinstance(actor_id, bool) or not isinstance(actor_id, str | int | UUID):
        raise InvalidOption("actor_id", actor_id, f"it must be a str, int, UUID or None, not {type(actor_id).__name__}")
    text = str(actor_id)
    if not 1 <= len(text) <= ACTOR_MAX_LENGTH or not text.isprintable():  # NUL and lone surrogates are not printable
        raise InvalidOption("actor_id", actor_id, f"it must have 1 to {ACTOR_MAX_LENGTH} printable characters")
    return text, actor_type
