"""One Redis server as the schedule's store: runs a verb's script within a time budget, and says what a failure means.

No blind retries: the client never repeats a command; this file does, because every verb is idempotent, and only within the budget.
`claim` is the exception (`retry=False`): a claim whose reply was lost is asked about with `resume`, not sent again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...exceptions import ScheduleError, ScheduleUnavailable
from ..backoff import backoff_seconds
from . import scripts
from .clients import MAX_CONNECTIONS, REQUEST, Connect, Patience, deadline
from .failures import DROPS_CONNECTIONS, PASSES_SOON, read_failure
from .requirements import check_server

T = TypeVar("T")
_SHORTEST_ATTEMPT_SECONDS = 0.02


class RedisStore:
    """Thread-safe; fork-safe (connections are dropped in a child, not closed for the parent).

    `connect` makes a client (clients.connect), `key` is KEYS[1] of every script, `patience` the budget of a call that names none.
    """

    _client: Any
    _lock: threading.Lock

    def __init__(self, connect: Connect, key: str | bytes, *, patience: Patience = REQUEST) -> None:
        self._connect, self._key, self.patience = connect, key, patience
        self.after_fork()

    def __repr__(self) -> str:
        return f"<RedisStore {self.place}>"

    # -- calls

    def run(self, verb: str, *args: Any, retry: bool = True, patience: Patience | None = None) -> Any:
        """Run `lua/<verb>.lua` with these ARGV; the script's reply, texts as bytes.

        Raises ScheduleUnavailable (with `kind`), BrokerMisconfigured, VerbFailed."""
        script = scripts.load(verb)
        return self.call(verb, lambda client: scripts.evaluate(client, script, self._key, args), retry=retry, patience=patience)

    def call(self, name: str, work: Callable[[Any], T], *, retry: bool = True, patience: Patience | None = None) -> T:
        """Do `work(client)` within the budget, again after failures that pass soon. Errors as of `run`; `name` is for their text."""
        patience = patience or self.patience
        end = time.monotonic() + patience.total_seconds
        attempt = 0
        while True:
            until = min(end, time.monotonic() + patience.attempt_seconds)
            reply, failure = self._attempt(name, work, until)
            if failure is None:
                return reply  # type: ignore[return-value]
            pause = backoff_seconds(attempt, cap_seconds=1.0)
            passes = retry and isinstance(failure, ScheduleUnavailable) and failure.kind in PASSES_SOON
            if not passes or time.monotonic() + pause + _SHORTEST_ATTEMPT_SECONDS > end:
                raise failure
            time.sleep(pause)
            attempt += 1

    def _attempt(self, name: str, work: Callable[[Any], T], until: float) -> tuple[T | None, ScheduleError | None]:
        # The failure is returned, not raised here: an exception raised while the redis error is handled would carry it as context,
        # and with it frames whose local variables hold the password.
        self._check_process()
        slots = self._slots
        if not slots.acquire(timeout=max(0.0, until - time.monotonic())):
            return None, self._failure(RedisTimeoutError(f"all {MAX_CONNECTIONS} connections of this process are in use"), name)
        try:
            with deadline(until):
                return work(self.client), None
        except (RedisError, RedisClusterException, OSError) as error:
            return None, self._failure(error, name)
        finally:
            slots.release()

    def _failure(self, error: Exception, name: str) -> ScheduleError:
        failure = read_failure(error, verb=name, place=self.place, secrets=self._secrets())
        if isinstance(failure, ScheduleUnavailable) and failure.kind in DROPS_CONNECTIONS:
            self._drop_connections()
        return failure

    # -- connections

    @property
    def client(self) -> Any:
        """The redis client of this process, made at first use."""
        if self._client is None:
            with self._lock:
                if self._client is None:
                    self._client = self._connect()
        return self._client

    @property
    def place(self) -> str:
        """Which server, without user and password, for messages."""
        pool = getattr(self._client, "connection_pool", None)
        if pool is None:
            return "(not connected)" if self._client is None else type(self._client).__name__
        if (service := getattr(pool, "service_name", None)) is not None:
            return f"sentinel service {service}"
        known = pool.connection_kwargs
        return f"{known.get('path') or '{}:{}'.format(known.get('host', 'localhost'), known.get('port', 6379))}/{known.get('db') or 0}"

    def _secrets(self) -> list[str]:
        known = getattr(getattr(self._client, "connection_pool", None), "connection_kwargs", {})
        return [known["password"]] if known.get("password") else []

    def _drop_connections(self) -> None:
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            pool.disconnect(inuse_connections=False)

    def connect(self) -> Any:
        """A client of its own for a caller that keeps a connection (the waiter)."""
        return self._connect()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's connections and locks. The parent's sockets are only closed here, never shut down."""
        self._client = None
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the connections. The store may be used again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- fitness

    def check(self) -> None:
        """Raise BrokerMisconfigured when this server must not hold a schedule, ScheduleUnavailable when it does not answer."""
        check_server(self.call("info", lambda client: {**client.info("server"), **client.info("memory")}), self.place)
