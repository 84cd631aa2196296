"""Background jobs for Django SaaS products whose tenants share one worker fleet.

The front door: the names below, nothing else. It is lazy, so that the worker supervisor can import the package without Django.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import current_job, system_context, tenant_context, tenant_transaction
    from .enqueueing import enqueue, enqueue_many
    from .exceptions import Cancel, Retry
    from .registry import task

_HOMES = {
    "task": "registry",
    "enqueue": "enqueueing",
    "enqueue_many": "enqueueing",
    "current_job": "context",
    "tenant_context": "context",
    "system_context": "context",
    "tenant_transaction": "context",
    "Retry": "exceptions",
    "Cancel": "exceptions",
}
__all__ = [
    "Cancel",
    "Retry",
    "current_job",
    "enqueue",
    "enqueue_many",
    "system_context",
    "task",
    "tenant_context",
    "tenant_transaction",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
