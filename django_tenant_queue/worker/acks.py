"""Acks of settled jobs, sent together: while one call to the schedule is under way, the next acks gather.

The ledger has settled these jobs. If we die with acks unsent, their leases expire and the reaper finds rows that no longer run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from .. import logs
from ..exceptions import ScheduleError
from ..settle import Acknowledges


class GatheredAcks:
    """`ack` returns at once; one thread sends. When the schedule does not answer, those leases are left to the reaper."""

    def __init__(self, broker: Acknowledges) -> None:
        self._broker = broker
        self._tokens: list[str] = []
        self._sending = False
        self._changed = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._send_forever, name="acks", daemon=True).start()

    def ack(self, tokens: Iterable[str]) -> None:
        with self._changed:
            self._tokens.extend(tokens)
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all are sent. False: they were not, within `seconds`."""
        end = time.monotonic() + seconds
        with self._changed:
            return self._changed.wait_for(lambda: not self._tokens and not self._sending, max(0.0, end - time.monotonic()))

    def _send_forever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tokens)
                tokens, self._tokens, self._sending = self._tokens, [], True
            try:
                self._broker.ack(tokens)
            except ScheduleError as error:
                logs.schedule_trouble("ack", error)
            except Exception as error:
                logs.process_broken("acks", error)
            with self._changed:
                self._sending = False
                self._changed.notify_all()
