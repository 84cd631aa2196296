"""Where connections to the schedule come from: a pool of our own over a cache alias, in which every wait ends by our deadline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError
from django.utils.module_loading import import_string
from redis import exceptions as redis_errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...exceptions import BrokerMisconfigured

HEALTH_CHECK_SECONDS = 15
MAX_CONNECTIONS = 64  # of one process; callers beyond it wait their turn within their budget


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take: in all, and for one attempt. An attempt includes connecting, signing in and the reply."""

    total_seconds: float
    attempt_seconds: float


REQUEST = Patience(total_seconds=2.0, attempt_seconds=0.9)  # somebody waits for a page
WORKER = Patience(total_seconds=4.0, attempt_seconds=1.5)  # shorter than LEASE - RENEW: a renewal must know in time that it failed

Connect = Callable[[], Any]


class _Deadline(threading.local):
    until: float | None = None  # time.monotonic(); of the call that this thread is making


_deadline = _Deadline()


@contextmanager
def deadline(until: float) -> Iterator[None]:
    """Bound every socket operation of this thread on our connections by `until` (time.monotonic())."""
    before, _deadline.until = _deadline.until, until
    try:
        yield
    finally:
        _deadline.until = before


class _Bounded:
    """Mixed into the alias's connection class. redis-py's timeouts are per operation, and a call makes up to seven
    (connect, AUTH, SELECT, PING, send, read, ...); here each may take only what is left of the deadline."""

    _sock: socket.socket | None  # of redis-py, as are the two below
    socket_timeout: float | None
    socket_connect_timeout: float | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.driver_info = self.lib_name = self.lib_version = None  # two round trips less for each connection
        self._longest = (self.socket_timeout, self.socket_connect_timeout)

    def _connect(self) -> Any:
        left = _left()
        self.socket_timeout, self.socket_connect_timeout = (least(limit, left) for limit in self._longest)
        return super()._connect()  # type: ignore[misc]

    def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
        self._bound()
        return super().send_packed_command(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        self._bound()
        return super().read_response(*args, **kwargs)  # type: ignore[misc]

    def _bound(self) -> None:
        sock = self._sock
        if sock is not None:
            sock.settimeout(least(self._longest[0], _left(self)))


def _left(connection: Any = None) -> float | None:
    if _deadline.until is None:
        return None
    left = _deadline.until - time.monotonic()
    if left <= 0:
        if connection is not None:
            connection.disconnect()  # a reply may still be under way: it must not be read as the next command's
        raise redis_errors.TimeoutError("no time left")
    return left


def least(limit: float | None, left: float | None) -> float | None:
    """The shorter of two times, None being endless."""
    return min((value for value in (limit, left) if value is not None), default=None)


def connection_options(patience: Patience) -> dict[str, Any]:
    """What we ask of every client, also of CLIENT_FACTORY's: no retries of its own, finite waits, bytes in replies.

    RESP2: no HELLO round trip, no push messages between replies.
    """
    return {
        "socket_timeout": patience.attempt_seconds,
        "socket_connect_timeout": patience.attempt_seconds,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "decode_responses": False,
        "max_connections": MAX_CONNECTIONS,
    }


def connect(alias: str, factory: str | None, patience: Patience) -> Any:
    """A client with a pool of its own. `factory` (CLIENT_FACTORY) is the dotted path of a callable that takes the keyword arguments of
    `connection_options` and returns a redis client; without it the django-redis cache `alias` says where the server is.
    Raises BrokerMisconfigured when neither does."""
    if factory is not None:
        return _import(factory)(**connection_options(patience))
    client = _client_of_alias(alias, connection_options(patience))
    if client is None:  # raised here, where no local variable holds the URL
        raise BrokerMisconfigured(
            f"The URL of the cache alias {alias!r} cannot be read: it must look like redis://user:password@host:6379/1, "
            "with special characters in % code."
        )
    return client


def _import(path: str) -> Callable[..., Any]:
    try:
        return import_string(path)
    except ImportError as error:
        raise BrokerMisconfigured(f"TENANT_QUEUE['CLIENT_FACTORY'] is {path!r}, which cannot be imported: {error}.") from error


def _client_of_alias(alias: str, ours: dict[str, Any]) -> Any:
    url, options = _server_of_alias(alias)
    factory = _connection_factory(options, ours)
    try:
        pool = factory.get_connection_pool(factory.make_connection_params(url))
    except ValueError:  # its text quotes pieces of the URL
        return None
    # Arguments in the URL win over everything else in from_url, so ours are put in afterwards.
    limit = ours.pop("max_connections")
    pool.max_connections = limit
    pool.connection_kwargs.update(ours, retry_on_timeout=False, retry_on_error=[])
    pool.connection_class = type("BoundedConnection", (_Bounded, pool.connection_class), {})
    pool.reset()
    return factory.redis_client_cls(connection_pool=pool)


def _server_of_alias(alias: str) -> tuple[str, dict[str, Any]]:
    try:
        client = cast("Any", caches[alias]).client
        server = client._server  # django-redis has no public name for it
    except InvalidCacheBackendError:
        raise BrokerMisconfigured(f"There is no cache alias {alias!r}: add it to CACHES, or set TENANT_QUEUE['REDIS_ALIAS'].") from None
    except AttributeError:
        raise BrokerMisconfigured(
            f"The cache alias {alias!r} is not a django-redis cache: the schedule needs a Redis or Valkey server."
        ) from None
    return server[0] if isinstance(server, list | tuple) else server, client._options


def _connection_factory(options: dict[str, Any], ours: dict[str, Any]) -> Any:
    from django_redis.pool import get_connection_factory

    waits = {name: ours[name] for name in ("socket_timeout", "socket_connect_timeout", "retry")}
    return get_connection_factory(
        options={
            **options,
            "CONNECTION_POOL_KWARGS": {k: v for k, v in options.get("CONNECTION_POOL_KWARGS", {}).items() if k != "max_connections"},
            "SENTINEL_KWARGS": {**(options.get("SENTINEL_KWARGS") or {}), **waits},
        }
    )
