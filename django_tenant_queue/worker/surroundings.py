"""What every fork of the zygote does before its own work: own connections, own random numbers, signals, the switch interval."""

from __future__ import annotations

import random
import sys

from django.db import connections

from .. import logs
from ..brokers.base import Broker
from ..brokers.current import get_broker
from ..conf import Conf, get_conf
from ..signals import worker_started
from .linux import name_process
from .orders import Orders, ignore_signals

DRAINED_ROLES = ("worker", "quarantine")  # the others go on until these have ended
SWITCH_INTERVAL_SECONDS = 0.001  # default 5 ms: a password reset would wait that long behind each CPU-bound thread


def settle_in(role: str, orders: Orders) -> tuple[Broker, Conf]:
    """First thing after the fork, in the main thread. -> this process's broker and configuration."""
    if role in DRAINED_ROLES:
        orders.listen()
    else:
        ignore_signals()
    name_process(role)
    random.seed()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    _keep_connections()
    broker = _own_broker()
    for receiver, answer in worker_started.send_robust(sender=None, role=role):
        if isinstance(answer, Exception):
            logs.receiver_failed("worker_started", receiver, answer)
    return broker, get_conf()


def _own_broker() -> Broker:
    broker = get_broker(patient=True)
    broker.after_fork()
    return broker


def _keep_connections() -> None:
    """CONN_MAX_AGE 0 means "until the end of the request"; there is no request here, and a thread keeps its connection between jobs.
    A connection pool keeps them in its own way and refuses another."""
    for options in connections.settings.values():
        if not options["CONN_MAX_AGE"] and not options["OPTIONS"].get("pool"):
            options["CONN_MAX_AGE"] = None
