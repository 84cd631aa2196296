"""Reaper: settles expired leases. Redis hands each of them to one reaper, so reapers need no turns."""

from __future__ import annotations

from ..brokers.base import Broker
from ..conf import Conf
from ..exceptions import ScheduleLost
from ..handback import take_expired

PAGE = 100
PAGES = 20  # in one sweep: a fleet that lost all its leases at one moment must not run them all again at one moment


class Reaper:
    name = "reaper"

    def interval(self, conf: Conf) -> float:
        return conf.sweep_seconds

    def step(self, broker: Broker, conf: Conf) -> None:
        try:
            for _ in range(PAGES):
                if take_expired(PAGE, broker=broker) < PAGE:
                    return
        except ScheduleLost:
            return  # nothing is leased there; the relay opens it
