"""`@task` and the registry: the only way from a task name to a function."""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from .exceptions import DuplicateTask, InvalidOption, InvalidPayload, NotBuiltYet, UnknownTask

if TYPE_CHECKING:
    from .models import Job

P = ParamSpec("P")
R = TypeVar("R")

NAME_MAX_LENGTH = 200


@dataclass(frozen=True)
class Task(Generic[P, R]):
    """A registered function and how its jobs run. Calling it runs the body at once, in the caller's context.

    `cost` in thousandths; `timeout_seconds` and `max_retries` None: the configured default; `queue` None is "default".
    """

    function: Callable[P, R]
    name: str
    queue: str
    cost: int
    max_retries: int | None
    timeout_seconds: float | None
    atomic: bool
    tenant_scoped: bool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue with these arguments, in the current tenant and actor."""
        return BoundTask(self, {}).enqueue(*args, **kwargs)

    def using(
        self,
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
    ) -> BoundTask[P, R]:
        """The same task with options of enqueue() fixed."""
        options = {name: value for name, value in locals().items() if name != "self"}
        return BoundTask(self, options)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, checked against the signature. Raises InvalidPayload when they do not fit."""
        signature = _signature(self.function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidPayload(f"the arguments do not fit {self.name}{signature}: {error}") from None
        payload: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                payload.update(value)
            else:
                payload[name] = value
        return payload


@dataclass(frozen=True)
class BoundTask(Generic[P, R]):
    """A task with enqueue options."""

    task: Task[P, R]
    options: Mapping[str, Any]

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        from .enqueueing import enqueue

        return enqueue(self.task, self.task.bind(args, kwargs), **self.options)


class Registry:
    """Names -> tasks. Filled by @task when the `tasks` modules of installed apps are imported."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._numbers: dict[int, str] = {}

    def add(self, task: Task[Any, Any]) -> None:
        known = self._tasks.get(task.name)
        if known is not None and (known.function.__module__, known.function.__qualname__) != (
            task.function.__module__,
            task.function.__qualname__,
        ):
            raise DuplicateTask(task.name)
        twin = self._numbers.setdefault(task_number(task.name), task.name)
        if twin != task.name:
            raise DuplicateTask(task.name, twin)
        self._tasks[task.name] = task

    def get(self, name: object) -> Task[Any, Any]:
        """The task of that name. Raises UnknownTask, never imports anything."""
        found = self._tasks.get(name) if isinstance(name, str) else None
        if found is None:
            text = str(name)[:NAME_MAX_LENGTH]
            close = difflib.get_close_matches(text, self._tasks, n=1)
            raise UnknownTask(text, close[0] if close else None)
        return found

    def names(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def discard(self, name: str) -> None:
        self._tasks.pop(name, None)
        self._numbers.pop(task_number(name), None)


@lru_cache(maxsize=4096)
def task_number(name: str) -> int:
    """A stable 31-bit number for a task name: the schedule never holds names."""
    return int.from_bytes(hashlib.blake2s(name.encode(), digest_size=4).digest(), "big") & 0x7FFF_FFFF


@lru_cache(maxsize=4096)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


registry = Registry()


def task(
    function: Callable[..., Any] | None = None,
    *,
    queue: str = "default",
    cost: float = 1,
    max_retries: int | None = None,
    timeout: float | None = None,
    atomic: bool = True,
    tenant_scoped: bool = True,
    unique: bool = False,
    require_idempotency_key: bool = False,
    permission: str | None = None,
    authorize: Callable[..., bool] | None = None,
    name: str | None = None,
) -> Any:
    """Register a function as a task, as `@task` or `@task(queue="bulk", ...)`.

    `cost` 0.001 to 1000; `timeout` seconds; `atomic` runs the body in one transaction with its settle; `name` defaults to
    `module.function`. Raises InvalidOption, DuplicateTask, NotBuiltYet.
    """
    for option, value in (
        ("unique", unique),
        ("require_idempotency_key", require_idempotency_key),
        ("permission", permission),
        ("authorize", authorize),
    ):
        if value:
            raise NotBuiltYet(f"task({option}=...)")

    def register(function: Callable[..., Any]) -> Task[Any, Any]:
        made = _make(function, name, queue, cost, max_retries, timeout, atomic, tenant_scoped)
        registry.add(made)
        return made

    return register if function is None else register(function)


def _make(
    function: Callable[..., Any],
    name: str | None,
    queue: str,
    cost: float,
    max_retries: int | None,
    timeout: float | None,
    atomic: bool,
    tenant_scoped: bool,
) -> Task[Any, Any]:
    full_name = name or f"{function.__module__}.{function.__qualname__}"
    if inspect.iscoroutinefunction(function):
        raise NotBuiltYet(f"async def {full_name}: an asynchronous task")
    if len(full_name) > NAME_MAX_LENGTH or not full_name.isprintable() or "<locals>" in full_name:
        raise InvalidOption(
            "name", full_name, f"use at most {NAME_MAX_LENGTH} printable characters, and a function at module level or name=..."
        )
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise InvalidOption(
                "function", full_name, f"parameter {parameter.name!r} cannot be passed by name, and payloads are stored by name"
            )
    if max_retries is not None and (isinstance(max_retries, bool) or not isinstance(max_retries, int) or not 0 <= max_retries <= 100):
        raise InvalidOption("max_retries", max_retries, "it must be an integer from 0 to 100")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 86_400 * 7):
        raise InvalidOption("timeout", timeout, "it must be seconds above 0, at most a week")
    return Task(function, full_name, queue, cost_thousandths(cost), max_retries, timeout, atomic, tenant_scoped)


def cost_thousandths(cost: object) -> int:
    """0.001 to 1000 -> integer thousandths. Raises InvalidOption."""
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0.001 <= cost <= 1000:
        raise InvalidOption("cost", cost, "it must be a number from 0.001 to 1000")
    return round(cost * 1000)


__all__ = ["BoundTask", "Registry", "Task", "cost_thousandths", "registry", "task"]
