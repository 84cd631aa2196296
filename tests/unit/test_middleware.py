"""Request -> origin, in sync and async stacks, resolved when it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import RequestFactory, override_settings
from django.utils.functional import SimpleLazyObject

from django_tenant_queue import system_context, tenant_context
from django_tenant_queue.context.current import Origin, correlation_id_of, current_origin, trace_of
from django_tenant_queue.exceptions import ImproperlyConfiguredQueue, InvalidOption, InvalidTenant, TenantMismatch
from django_tenant_queue.middleware import TenantEnvelopeMiddleware

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
asked: list[str] = []


class Member:
    is_authenticated = True
    pk = 42


class Anonymous:
    is_authenticated = False
    pk = None


def tenant_in_header(request: HttpRequest) -> str | None:
    asked.append("tenant")
    return request.headers.get("X-Tenant")


def tenant_that_fails(request: HttpRequest) -> str:
    raise ZeroDivisionError


def tenant_that_asks_for_the_origin(request: HttpRequest) -> str | None:
    assert current_origin() is None
    return "acme"


async def tenant_later(request: HttpRequest) -> str:
    return "acme"


def key_of_header(request: HttpRequest) -> Any:
    asked.append("actor")
    return (UUID(int=7), "api_key") if "X-Key" in request.headers else "nobody"


def configured(tenant: str | None = "tenant_in_header", actor: str | None = None) -> Any:
    names = {"TENANT": tenant, "ACTOR": actor}
    return override_settings(TENANT_QUEUE={key: value and f"{__name__}.{value}" for key, value in names.items()})


@pytest.fixture(autouse=True)
def forget() -> None:
    asked.clear()


def request(user: Any = None, **headers: str) -> HttpRequest:
    made = RequestFactory().get("/", headers={name.replace("_", "-"): value for name, value in headers.items()})
    if user is not None:
        made.user = user
    return made


def seen(made: HttpRequest, look: Callable[[], Any] = current_origin) -> Any:
    """What `look` returns in a view behind the middleware."""
    found: list[Any] = []

    def view(_: HttpRequest) -> HttpResponse:
        found.append(look())
        return HttpResponse()

    TenantEnvelopeMiddleware(view)(made)
    assert current_origin() is None
    return found[0]


def test_a_request_has_its_tenant_actor_and_correlation_id() -> None:
    with configured():
        here = seen(request(Member(), X_Tenant="acme", X_Request_ID="req-1", traceparent=TRACE))
    assert here == Origin("acme", "42", "user", "req-1", TRACE)


def test_without_a_user_the_actor_is_nobody_and_never_the_system() -> None:
    with configured():
        for user in (None, Anonymous()):
            here = seen(request(user, X_Tenant="acme"))
            assert (here.actor_id, here.actor_type, here.system) == (None, "user", False)


def test_without_a_tenant_setting_a_request_has_no_tenant() -> None:
    with configured(tenant=None):
        assert seen(request(Member())).tenant_id is None


def test_the_actor_may_come_from_elsewhere() -> None:
    with configured(actor="key_of_header"):
        here = seen(request(Member(), X_Key="k"))
        assert (here.actor_id, here.actor_type) == (str(UUID(int=7)), "api_key")
        with pytest.raises(ImproperlyConfiguredQueue, match=r"must return \(actor_id, actor_type\)"):
            seen(request())


def test_nothing_is_resolved_before_it_is_needed() -> None:
    """A view that enqueues nothing loads no session."""
    with configured(actor="key_of_header"):
        user = SimpleLazyObject(lambda: pytest.fail("the session was loaded"))
        seen(request(user, X_Key="k"), look=lambda: None)
        assert asked == []


def test_tenant_and_actor_are_resolved_once() -> None:
    with configured(actor="key_of_header"):
        first, second = seen(request(X_Key="k", X_Tenant="acme"), look=lambda: (current_origin(), current_origin()))
    assert first is second
    assert asked == ["tenant", "actor"]


def test_an_error_of_the_resolver_reaches_the_view() -> None:
    with configured(tenant="tenant_that_fails"), pytest.raises(ZeroDivisionError):
        seen(request())
    assert current_origin() is None


def test_a_tenant_that_cannot_be_one_is_refused() -> None:
    """I01."""
    with configured(), pytest.raises(InvalidTenant):
        seen(request(X_Tenant="*"))


def test_a_resolver_that_needs_the_origin_finds_none_and_does_not_loop() -> None:
    with configured(tenant="tenant_that_asks_for_the_origin"):
        assert seen(request()).tenant_id == "acme"


def test_an_async_resolver_is_refused_with_a_sentence() -> None:
    with configured(tenant="tenant_later"), pytest.raises(ImproperlyConfiguredQueue, match="async"):
        seen(request())


def test_a_user_whose_key_cannot_be_stored_is_refused() -> None:
    class Odd(Member):
        pk = "a\nb"

    with configured(), pytest.raises(InvalidOption, match="actor_id"):
        seen(request(Odd()))


def test_system_context_in_a_view_resolves_nothing_and_keeps_the_correlation_id() -> None:
    def look() -> Origin | None:
        with system_context():
            return current_origin()

    with configured(tenant="tenant_that_fails"):
        assert seen(request(X_Request_ID="req-1"), look) == Origin(None, None, "system", "req-1", "", system=True)


def test_a_view_may_not_act_for_another_tenant() -> None:
    def look() -> None:
        with tenant_context("acme"), pytest.raises(TenantMismatch), tenant_context("other"):
            pytest.fail("entered")
        with pytest.raises(TenantMismatch), tenant_context("other"):
            pytest.fail("entered")

    with configured():
        seen(request(X_Tenant="acme"), look)


def test_the_context_ends_when_the_view_fails() -> None:
    """I09."""

    def view(_: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError

    with configured(), pytest.raises(ZeroDivisionError):
        TenantEnvelopeMiddleware(view)(request(X_Tenant="acme"))
    assert current_origin() is None


def test_a_streaming_response_is_read_outside_of_the_context() -> None:
    """As documented."""
    with configured():
        response = TenantEnvelopeMiddleware(lambda _: StreamingHttpResponse(iter([repr(current_origin() is None)])))(
            request(X_Tenant="acme")
        )
        assert b"".join(response) == b"False"  # type: ignore[arg-type]
        lazy = TenantEnvelopeMiddleware(lambda _: StreamingHttpResponse(str(current_origin() is None) for _ in "x"))(
            request(X_Tenant="acme")
        )
        assert b"".join(lazy) == b"True"  # type: ignore[arg-type]


def test_async_requests_do_not_see_each_other() -> None:
    """I05: twenty at once, each suspended in the middle; also in a thread that the view asks."""

    async def view(made: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        here = await sync_to_async(current_origin)()
        await asyncio.sleep(0)
        again = current_origin()
        assert here is again
        return HttpResponse(here.tenant_id if here else "")

    async def all_of_them() -> list[bytes]:
        middleware = TenantEnvelopeMiddleware(view)
        assert iscoroutinefunction(middleware)
        answers = [middleware(request(Member(), X_Tenant=f"t{number}")) for number in range(20)]
        responses = await asyncio.gather(*answers)  # type: ignore[arg-type]
        assert current_origin() is None
        return [response.content for response in responses]

    with configured():
        assert asyncio.run(all_of_them()) == [f"t{number}".encode() for number in range(20)]


def test_an_async_streaming_response_is_read_outside_of_the_context() -> None:
    async def rows() -> AsyncIterator[str]:
        yield str(current_origin() is None)

    async def view(_: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(rows())

    async def read() -> list[bytes]:
        response = await TenantEnvelopeMiddleware(view)(request(X_Tenant="acme"))  # type: ignore[misc]
        return [part async for part in response]  # type: ignore[attr-defined]

    with configured():
        assert asyncio.run(read()) == [b"True"]


@pytest.mark.parametrize("value", ["a", "req-1", "x" * 128, "a b", "{}<>&'\""])
def test_a_printable_correlation_id_is_kept(value: str) -> None:
    assert correlation_id_of(value) == value


@pytest.mark.parametrize("value", ["", " ", "x" * 129, "a\nb", "a\rb", "\x1b[31m", "a\0", "é", "\u202e", None, 5])
def test_any_other_correlation_id_is_replaced(value: Any) -> None:
    """J09: an id from outside cannot break a log line."""
    made = correlation_id_of(value)
    assert made != value
    assert len(made) == 32
    assert made != correlation_id_of(value)


def test_the_correlation_id_falls_back_to_the_trace() -> None:
    with configured(tenant=None):
        assert seen(request(traceparent=TRACE)).correlation_id == TRACE.split("-")[1]
        assert seen(request(traceparent=TRACE, X_Request_ID="x" * 129)).correlation_id not in ("x" * 129, TRACE.split("-")[1])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        TRACE.upper(),
        TRACE + "-x",
        f"ff{TRACE[2:]}",
        TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TRACE + "\n",
        None,
    ],
)
def test_what_is_no_traceparent_is_dropped(value: Any) -> None:
    assert trace_of(value) == ""
