"""The keepers process: runs the keepers of this tree until it is told to close, and with --burst says when nothing is left to do."""

from __future__ import annotations

import threading
import time

from django.db import Error as DatabaseError
from django.db import connections

from .. import keepers, logs
from ..conf import Conf
from ..handback import ledger
from ..models import Status
from .options import DRAINED, NOTHING_LEFT, WorkerOptions
from .orders import Orders
from .slots import Order, Page
from .surroundings import settle_in

LOOK_SECONDS = 0.2
UNFINISHED = (Status.QUEUED, Status.RUNNING, Status.RETRYING)


def run_keepers(page: Page, orders: Orders, options: WorkerOptions) -> int:
    """The main function of the keepers process. -> its exit code."""
    broker, conf = settle_in("keepers", orders)
    stop = threading.Event()
    running = threading.Thread(target=keepers.run, args=(keepers.all_keepers(), broker, conf, stop), name="keepers", daemon=True)
    running.start()
    code = DRAINED
    while page.order is not Order.CLOSE and not (orders.orphaned() and not any(page.live())):
        if options.burst and page.order is Order.RUN and _nothing_left(options, conf):
            code = NOTHING_LEFT
            break
        time.sleep(LOOK_SECONDS if page.order is Order.RUN else LOOK_SECONDS / 10)
    stop.set()
    running.join(timeout=2)
    return code


def _nothing_left(options: WorkerOptions, conf: Conf) -> bool:
    """No job of the served queues is queued, running or waits for a retry. Jobs due in the future are not waited for."""
    try:
        return not ledger(conf).filter(finished_at=None, status__in=UNFINISHED, queue__in=options.queues).exists()
    except DatabaseError as error:
        logs.ledger_trouble("burst", error)
        connections[conf.database].close()
        return False
