"""Request -> origin: which tenant, which actor, which correlation id. Nothing is resolved before something needs it.

The origin holds while the view runs. A streaming response is read after that, outside of it: code in its generator that enqueues needs
`tenant_context(...)` of its own. In an async view use `aenqueue`, or `sync_to_async(current_origin)`: the default actor may load a session.
"""

from __future__ import annotations

from asyncio import iscoroutine
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string

from .conf import get_conf
from .context.current import LazyOrigin, actor_of, correlation_id_of, trace_of, use_origin
from .envelope import tenant_id_of
from .exceptions import ImproperlyConfiguredQueue


class TenantEnvelopeMiddleware:
    """Place it after AuthenticationMiddleware. Works in sync and async stacks."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response: Any = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self.is_async:
            return self._respond(request)
        with use_origin(origin_of(request)):
            return self.get_response(request)

    async def _respond(self, request: HttpRequest) -> HttpResponseBase:
        with use_origin(origin_of(request)):
            return await self.get_response(request)


def origin_of(request: HttpRequest) -> LazyOrigin:
    """The origin of work asked for by this request. The correlation id is X-Request-ID, else the trace id of traceparent, else new."""
    trace = trace_of(request.headers.get("traceparent"))
    return LazyOrigin(
        tenant=lambda: tenant_of(request),
        actor=lambda: actor_of_request(request),
        correlation_id=correlation_id_of(request.headers.get("X-Request-ID") or (trace.split("-")[1] if trace else None)),
        trace=trace,
    )


def tenant_of(request: HttpRequest) -> str | None:
    """What TENANT says. Raises InvalidTenant, and whatever TENANT raises."""
    value = _ask("TENANT", get_conf().tenant, request)
    return None if value is None else tenant_id_of(value)


def actor_of_request(request: HttpRequest) -> tuple[str | None, str]:
    """What ACTOR says; by default the signed-in user, else nobody: (None, "user")."""
    dotted = get_conf().actor
    if dotted is None:
        user = getattr(request, "user", None)
        return actor_of(str(user.pk), "user") if user is not None and user.is_authenticated else (None, "user")
    pair = _ask("ACTOR", dotted, request)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ImproperlyConfiguredQueue(
            f"TENANT_QUEUE['ACTOR'] ({dotted}) must return (actor_id, actor_type); it returned {type(pair).__name__}."
        )
    return actor_of(*pair)


def _ask(setting: str, dotted: str | None, request: HttpRequest) -> Any:
    if dotted is None:
        return None
    resolver = import_string(dotted) if isinstance(dotted, str) else dotted
    value = resolver(request)
    if iscoroutine(value):
        value.close()
        raise ImproperlyConfiguredQueue(f"TENANT_QUEUE[{setting!r}] ({dotted}) is an async function; make it a plain one.")
    return value
