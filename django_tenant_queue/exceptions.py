"""One tree of errors. Each message is a sentence that says what was wrong and what to do; the facts are attributes."""

from __future__ import annotations

from typing import Any


class TenantQueueError(Exception):
    """Base of everything this app raises on purpose."""


# -- configuration


class ImproperlyConfiguredQueue(TenantQueueError):
    """A setting, a database or a store is not usable as configured."""


class NotBuiltYet(TenantQueueError):
    """An option of the public surface whose part is not built yet was used with another value than its default."""

    def __init__(self, option: str) -> None:
        self.option = option
        super().__init__(f"{option} is not built yet; leave it at its default.")


# -- at the door


class MissingTenant(TenantQueueError):
    """A tenant-scoped task was enqueued without a tenant."""

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"Task {task!r} is tenant-scoped, but there is no tenant here: pass tenant_id=..., enqueue inside tenant_context(...), "
            f"or declare the task with tenant_scoped=False."
        )


class InvalidTenant(TenantQueueError, ValueError, TypeError):
    """A value that cannot be a tenant id."""

    def __init__(self, value: object, reason: str) -> None:
        self.value, self.reason = value, reason
        super().__init__(f"{_shown(value)} is not a tenant id: {reason}. Use a str of 1 to 128 characters, an int or a UUID.")


class TenantMismatch(TenantQueueError):
    """Work for another tenant was asked for from inside a tenant's context."""

    def __init__(self, current: str, asked: str | None) -> None:
        self.current, self.asked = current, asked
        super().__init__(
            f"This code runs as tenant {current!r} and may not act or enqueue for {asked!r}: "
            "use `with system_context():` when that is meant."
        )


class InvalidPayload(TenantQueueError, ValueError, TypeError):
    """Arguments that cannot be stored and given back unchanged, or do not fit the task. `path` says where."""

    def __init__(self, reason: str, path: str = "payload") -> None:
        self.reason, self.path = reason, path
        super().__init__(f"{path}: {reason}")


class InvalidOption(TenantQueueError, ValueError):
    """An argument of enqueue(), task() or a command that is out of range or of the wrong type."""

    def __init__(self, option: str, value: object, reason: str) -> None:
        self.option, self.value, self.reason = option, value, reason
        super().__init__(f"{option}={_shown(value)}: {reason}.")


class UnknownTask(TenantQueueError, LookupError):
    """A task name that is not in the registry."""

    def __init__(self, name: str, suggestion: str | None = None) -> None:
        self.name, self.suggestion = name, suggestion
        hint = (
            f" Did you mean {suggestion!r}?"
            if suggestion
            else " Decorate the function with @task in a module named tasks.py of an installed app."
        )
        super().__init__(f"No task is registered as {_shown(name)}.{hint}")


class DuplicateTask(TenantQueueError):
    """Two functions were registered under one name."""

    def __init__(self, name: str, twin: str | None = None) -> None:
        self.name, self.twin = name, twin
        what = f"Tasks {name!r} and {twin!r} have the same task number" if twin else f"A task named {name!r} is registered already"
        super().__init__(f"{what}: give one of them another name=....")


# -- inside a job


class OutsideJob(TenantQueueError):
    """current_job() was called outside a job."""

    def __init__(self) -> None:
        super().__init__("current_job() has a value only while a job runs; there is none here.")


class TransactionBoundaryBroken(TenantQueueError):
    """The body of an atomic task committed, rolled back or left its transaction by itself, or changed the tenant setting."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}: its writes may be committed, so the job is not run again. "
            f"Remove manual commit/rollback/set_autocommit from the task, or declare it with atomic=False."
        )


class OutsideTenantTransaction(TenantQueueError):
    """Database access of an atomic=False task outside tenant_transaction()."""

    def __init__(self) -> None:
        super().__init__(
            "This job runs with atomic=False, so there is no transaction that holds the tenant: "
            "wrap database access in `with tenant_transaction():`."
        )


class NoTenantHere(TenantQueueError):
    """tenant_transaction() was used where no tenant is set."""

    def __init__(self) -> None:
        super().__init__(
            "tenant_transaction() needs a tenant: use it inside a job, a request with a tenant, or `with tenant_context(...)`."
        )


class InvalidResult(TenantQueueError, ValueError):
    """A task returned something that is not JSON or is too large."""


# -- envelope


class BadSeal(TenantQueueError):
    """The stored row does not match its seal: it was edited or forged. `reason` says which check failed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"The job is not run: {reason}. It was edited or written by somebody without the key; enqueue it again through the application."
        )


class UnknownSealKey(TenantQueueError):
    """The row was sealed with a key this process does not know (a rotation in progress)."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"The job was sealed with the key {_shown(key_id)}, which this process does not know: "
            "add the key to TENANT_QUEUE['SEAL_KEYS'] (or SECRET_KEY_FALLBACKS) here, newest first."
        )


class UnreadablePayload(TenantQueueError):
    """The stored payload cannot be read back."""


# -- the schedule


class ScheduleError(TenantQueueError):
    """Base of what a broker raises."""


class ScheduleUnavailable(ScheduleError):
    """The schedule did not answer, or not in time. Whether the verb took effect is unknown; repeating it is harmless.

    `kind` is one lower-case word: connection, timeout, loading, masterdown, busy, tryagain, clusterdown, readonly, noreplicas, oom, ..."""

    def __init__(self, message: str = "The schedule is not available; it is tried again later.", *, kind: str = "unavailable") -> None:
        self.kind = kind
        super().__init__(message)


class VerbFailed(ScheduleError):
    """A verb's script failed for a reason that repeating it does not mend."""

    def __init__(self, verb: str, reason: str) -> None:
        self.verb, self.reason = verb, reason
        super().__init__(f"The schedule's verb {verb!r} failed: {reason}.")


class ScheduleLost(ScheduleError):
    """There is no epoch in the schedule: it was lost, replaced, or never opened. The reconciler opens a new one."""


class EpochMoved(ScheduleError):
    """The epoch passed by the caller is not the current one."""


class BrokerMisconfigured(ScheduleError, ImproperlyConfiguredQueue):
    """The store must not be used as it is configured (eviction policy, version)."""


# -- outcomes that task authors raise


class JobSignal(TenantQueueError):
    """Base of Retry and Cancel: raised by a task to say what should become of its job. The body is rolled back."""


class Retry(JobSignal):
    """Run again, after `after` seconds (default: the usual backoff). Counts as a failure."""

    def __init__(self, after: float | None = None, reason: str = "") -> None:
        self.after, self.reason = after, reason
        super().__init__(reason or "retry asked for by the task")


class Cancel(JobSignal):
    """End the job as `cancelled`, with a reason; no retry, no dead letter."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # a value that cannot be shown must not hide what is wrong with it
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 100 else text[:97] + "..."
