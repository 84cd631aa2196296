"""A quarantine process: one job, one thread, no claims. Its death is seen as the death of a process with one begun job."""

from __future__ import annotations

import os
import threading

from .. import logs
from ..brokers.base import Broker
from ..exceptions import ScheduleError
from ..models.moves import StartedJob
from .ledger_connection import LedgerConnection
from .options import DRAINED, WorkerOptions
from .orders import Orders
from .pool import Pool
from .process import LOOK_SECONDS, drain
from .quarantine import ACCEPTED, read_job
from .runner import run_job
from .slots import Entry, Order, Slot
from .surroundings import settle_in


def run_quarantine(entry: Entry, orders: Orders, options: WorkerOptions, data: int, tells: int) -> int:
    """The main function of a quarantine process, from the fork to its exit code. It closes `tells` by ending."""
    broker, conf = settle_in("quarantine", orders)
    job = read_job(data)
    free = threading.Event()

    def run(job: StartedJob, slot: Slot) -> None:
        os.write(tells, ACCEPTED)  # the slot is occupied: from here on the job is ours
        run_job(job, slot, acks=broker, conf=conf)

    pool = Pool(entry.slots, run, LedgerConnection(conf), lambda queue: free.set())
    pool.start()
    while not free.wait(LOOK_SECONDS):
        if orders.current() is not Order.RUN:
            return DRAINED  # not accepted: the thread that asked hands the job back
    if not _is_still_leased(job, broker):
        return DRAINED
    pool.post(job)
    while pool.busy and orders.current() is Order.RUN:
        free.clear()
        free.wait(LOOK_SECONDS)
    return drain(pool, entry, orders, options.grace_seconds, broker)


def _is_still_leased(job: StartedJob, broker: Broker) -> bool:
    """The way here may have taken long (a stopped zygote, no free entry): nothing begins with a lost lease, nor with one unknown."""
    try:
        return job.token in broker.renew([job.token])
    except ScheduleError as error:
        logs.schedule_trouble("quarantine", error)
        return False
