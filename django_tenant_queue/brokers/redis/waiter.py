"""Sleeps until a script wakes this name: a subscription to one channel, a pipe for interrupt(), and a pulse that finds dead connections."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisClusterException, RedisError

from ...exceptions import ScheduleError
from ..backoff import backoff_seconds
from ..base import Waiter
from .clients import Connect, deadline

LONGEST_STEP_SECONDS = 0.5  # connecting or reading a half-sent message; an interrupt() that meets one waits for at most this
SHORTEST_CONNECT_SECONDS = 0.05  # with less left of a wait, connecting would only be cut off; who waits so shortly looks by itself
_LOST = (RedisError, RedisClusterException, OSError, ScheduleError)


class RedisWaiter(Waiter):
    """`channel` is the one the scripts PUBLISH to. Subscribed at once, so that a wake-up between a claim and the next wait is kept.

    A pulse (PING) is sent after `pulse_seconds` without a sign of life and must be answered within `pulse_seconds`: a silently
    dropped connection is found within twice that, and made anew. A new subscription counts as a wake-up: one may have been missed.
    `subscriptions` counts them.
    """

    def __init__(self, connect: Connect, channel: str | bytes, *, pulse_seconds: float = 2.0) -> None:
        self._connect, self._channel, self._pulse_seconds = connect, channel, pulse_seconds
        self.subscriptions = 0
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._pipe_read, self._pipe_write = os.pipe()
        os.set_blocking(self._pipe_read, False)
        os.set_blocking(self._pipe_write, False)  # a full pipe wakes as well, and a signal handler must never block
        self._connection: Any = None  # of redis-py; not None: subscribed
        self._failures, self._subscribe_at = 0, 0.0
        self._alive_at, self._pulse_sent = 0.0, False
        self._subscribe(time.monotonic() + LONGEST_STEP_SECONDS)

    # -- the contract

    def wait(self, seconds: float) -> bool:
        if self._pid != os.getpid():
            self._leave_to_parent()
        end = time.monotonic() + seconds
        while True:
            if self._may_subscribe(end) and self._subscribe(end):
                return True
            woken = self._read_messages()
            if not woken:
                self._sleep(end)
                woken = self._read_messages()
            if self._drain_pipe() or woken:
                return True
            self._keep_pulse()
            if time.monotonic() >= end:
                return False

    def interrupt(self) -> None:
        with suppress(OSError):  # full: a wake-up is waiting already; closed: nobody waits
            os.write(self._pipe_write, b"\0")

    def close(self) -> None:
        self._disconnect()
        pipe, self._pipe_read, self._pipe_write = (self._pipe_read, self._pipe_write), -1, -1
        for end in pipe:
            if end >= 0:
                os.close(end)

    @property
    def is_subscribed(self) -> bool:
        """False while the connection is known to be lost."""
        return self._connection is not None

    # -- sleeping

    def _sleep(self, end: float) -> None:
        poll = select.poll()
        poll.register(self._pipe_read, select.POLLIN)
        sock = None if self._connection is None else self._connection._sock
        if sock is not None:
            poll.register(sock, select.POLLIN)
        poll.poll(max(0.0, min(end, self._next_step_at(end)) - time.monotonic()) * 1000)

    def _next_step_at(self, end: float) -> float:
        if self._connection is not None:
            return self._alive_at + self._pulse_seconds * (1 + self._pulse_sent)
        at = max(self._subscribe_at, time.monotonic())
        return at if end - at >= SHORTEST_CONNECT_SECONDS else end

    def _drain_pipe(self) -> bool:
        with suppress(BlockingIOError):
            return bool(os.read(self._pipe_read, 65536))
        return False

    # -- the subscription

    def _may_subscribe(self, end: float) -> bool:
        now = time.monotonic()
        return self._connection is None and now >= self._subscribe_at and end - now >= SHORTEST_CONNECT_SECONDS

    def _subscribe(self, end: float) -> bool:
        connection = None
        try:
            with deadline(min(end, time.monotonic() + LONGEST_STEP_SECONDS)):
                connection = _fresh_connection(self._connect())
                connection.connect()
                connection.send_command("SUBSCRIBE", self._channel, check_health=False)
                connection.read_response()
        except _LOST:
            self._subscribe_at = time.monotonic() + backoff_seconds(self._failures, cap_seconds=2.0)
            self._failures += 1
            if connection is not None:
                connection.disconnect()
            return False
        self._connection, self._failures = connection, 0
        self.subscriptions += 1
        self._is_alive()
        return True

    def _read_messages(self) -> bool:
        """Take in what arrived, without waiting for more; True when a wake-up was among it."""
        woken = False
        try:
            with deadline(time.monotonic() + LONGEST_STEP_SECONDS):
                while self._connection is not None and self._connection.can_read(0):
                    woken |= self._connection.read_response()[0] == b"message"
                    self._is_alive()
        except _LOST:
            self._disconnect()
        return woken

    def _keep_pulse(self) -> None:
        silent_seconds = time.monotonic() - self._alive_at
        if self._connection is None or silent_seconds < self._pulse_seconds:
            return
        if self._pulse_sent:
            if silent_seconds >= 2 * self._pulse_seconds:
                self._disconnect()
            return
        try:
            with deadline(time.monotonic() + LONGEST_STEP_SECONDS):
                self._connection.send_command("PING", check_health=False)
            self._pulse_sent = True
        except _LOST:
            self._disconnect()

    def _is_alive(self) -> None:
        self._alive_at, self._pulse_sent = time.monotonic(), False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def _leave_to_parent(self) -> None:
        """In a child: close our copies of the parent's descriptors and open our own."""
        self.close()
        self._open()


def _fresh_connection(client: Any) -> Any:
    """A connection that no pool hands to anybody else. A cluster delivers published messages on every node."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        pool = client.get_redis_connection(client.get_random_node()).connection_pool
    return pool.make_connection()
