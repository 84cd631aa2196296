"""A worker process: the claimer in its main thread, a pool of threads that run jobs, and how both end.

Drain: nothing is claimed from the instant of the order, running jobs may end within the grace, the rest is handed back at once and the
process exits hard. It dooms itself first: whoever reads its death later knows that no job caused it.
"""

from __future__ import annotations

import secrets
import time

from django.db import Error as DatabaseError

from .. import failpoints, logs
from ..brokers.base import Broker
from ..handback import HeldJob, hand_back
from ..models.moves import StartedJob
from .acks import GatheredAcks
from .claimer import Claimer
from .ledger_connection import LedgerConnection
from .options import CANNOT_START, DRAINED, HANDED_BACK, WorkerOptions
from .orders import Orders
from .pool import Pool
from .quarantine import QuarantineDoor
from .runner import run_job
from .slots import Entry, Order, Slot
from .surroundings import settle_in

LOOK_SECONDS = 0.02
FLUSH_SECONDS = 1.0  # for the last acks; what is not sent by then expires


def run_worker(entry: Entry, orders: Orders, options: WorkerOptions, door: QuarantineDoor) -> int:
    """The main function of a worker process, from the fork to its exit code."""
    broker, conf = settle_in("worker", orders)

    def run(job: StartedJob, slot: Slot) -> None:
        if job.needs_quarantine:
            door.run_apart(job, slot, broker=broker)
        else:
            run_job(job, slot, acks=acks, conf=conf)

    acks = GatheredAcks(broker)
    acks.start()
    name = secrets.token_hex(6)
    waiter = broker.open_waiter(name)
    orders.wake = waiter.interrupt
    pool = Pool(entry.slots, run, LedgerConnection(conf), lambda queue: claimer.thread_is_free(queue))
    shares = {name: conf.queues[name].max_share for name in options.queues if conf.queues and name in conf.queues}
    claimer = Claimer(pool, waiter, name=name, threads=options.threads, max_shares=shares, broker=broker, conf=conf)
    pool.start()
    code = DRAINED
    try:
        claimer.run(orders)
    except Exception as error:  # ours, not a job's: the jobs that run are not to be blamed for it
        logs.process_broken("worker", error)
        code = CANNOT_START
    failpoints.hit("S3")
    code = drain(pool, entry, orders, options.grace_seconds, broker) or code
    acks.flush(FLUSH_SECONDS)
    return code


def drain(pool: Pool, entry: Entry, orders: Orders, grace_seconds: float, broker: Broker) -> int:
    """Wait for running jobs, then hand back. -> the exit code; the caller must exit hard, threads may still be running."""
    end = orders.ordered_at + grace_seconds
    while pool.busy and time.monotonic() < end and orders.current() < Order.STOP:
        time.sleep(LOOK_SECONDS)
    if not pool.busy:
        return DRAINED
    entry.doom()
    held = [HeldJob(job.job_id, job.fence, job.token, begun=job.begun) for job in entry.held()]
    try:
        rows = hand_back(held, broker=broker)
    except DatabaseError as error:
        logs.ledger_trouble("drain", error)  # the lease keeper reads the slots of this process after its death, and tries again
    else:
        logs.handed_back(len(rows), "they did not end within the grace")
    return HANDED_BACK
