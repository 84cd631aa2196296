"""Frozen values that travel: the sealed envelope of a job, and what a run came to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from .exceptions import InvalidTenant

TENANT_MAX_LENGTH = 128
ACTOR_TYPES = ("user", "api_key", "system")


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who asked for what, for whom. `payload` is the stored text (JSON of the arguments by name), byte for byte.

    `cost` in thousandths. `enqueued_at` is aware, UTC. `trace` is a W3C traceparent or "".
    """

    job_id: UUID
    tenant_id: str | None
    actor_id: str | None
    actor_type: str
    task: str
    payload: str
    queue: str
    priority: int
    cost: int
    enqueued_at: datetime
    correlation_id: str
    trace: str = ""


class OutcomeKind(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # counts against max_retries
    INFRASTRUCTURE = "infrastructure"  # not the task's fault (deadlock, lost connection): a budget of its own
    CANCELLED = "cancelled"
    DEFERRED = "deferred"  # this worker cannot run it, another may: nothing is counted
    DEAD = "dead"  # no further run: broken boundary, bad seal, unreadable payload
    SUPERSEDED = "superseded"  # another run has taken the job over: nothing is recorded


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to. `result` is JSON text, `reason` a dead letter's reason or a cancellation's sentence.

    Error texts are clean: no NUL, no surrogates, bounded, redacted. `after_seconds`: the wait that was asked for, if any.
    """

    kind: OutcomeKind
    result: str | None = None
    reason: str = ""
    error_class: str = ""
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""
    after_seconds: float | None = None
    began_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunningJob:
    """What current_job() returns: a frozen value, never a query. `attempt` counts starts; `deadline` is monotonic seconds."""

    id: UUID
    fence: int
    attempt: int
    tenant_id: str | None
    actor_id: str | None
    actor_type: str
    correlation_id: str
    task: str
    queue: str
    enqueued_at: datetime
    deadline: float


def tenant_id_of(value: Any) -> str:
    """The one canonicaliser of tenant ids: str as is, int and UUID by str(). Raises InvalidTenant for anything else.

    1 to 128 characters, no NUL, no lone surrogate, no surrounding space, not "*".
    No Unicode normalisation: two different strings are two tenants.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise InvalidTenant(value, f"its type is {type(value).__name__}")
    if isinstance(value, int) and abs(value) >= 10**TENANT_MAX_LENGTH:
        raise InvalidTenant(value, f"it has more than {TENANT_MAX_LENGTH} digits")
    # The base types' own text: an enum's __str__ is its name, a str subclass would travel on.
    text = str.__str__(value) if isinstance(value, str) else int.__repr__(value) if isinstance(value, int) else str(value)
    if not text:
        raise InvalidTenant(value, "it is empty")
    if len(text) > TENANT_MAX_LENGTH:
        raise InvalidTenant(value, f"it has {len(text)} characters")
    if text != text.strip():
        raise InvalidTenant(value, "it begins or ends with white space")
    if "\0" in text:
        raise InvalidTenant(value, "it contains NUL")
    if text == "*":
        raise InvalidTenant(value, '"*" means the default for all tenants')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTenant(value, "it contains a lone surrogate") from None
    return text
