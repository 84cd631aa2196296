"""The claimer: the main thread of a worker process. Claim what the pool can hold, start it in the ledger, hand it to threads, sleep.

Never claim while the ledger cannot be reached: a lease would be burnt for nothing. A claim whose reply was lost is asked about with
`resume` until the schedule answers, and no other claim is sent before: what it took is started or given back, never forgotten.
If we die between claim and start, the lease expires and the reaper publishes the job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import Error as DatabaseError
from django.db import connections

from .. import failpoints, logs
from ..brokers.backoff import backoff_seconds
from ..brokers.base import Broker, Claim, ClaimReply, ClaimRequest, QueueShare, Waiter
from ..conf import Conf
from ..exceptions import ScheduleError, ScheduleLost
from ..starting import start_claims
from .orders import Orders
from .pool import Pool
from .shares import free_shares
from .slots import Order

LONGEST_WAIT_SECONDS = 1.0
SHORTEST_WAIT_SECONDS = 0.05  # until a parked lane wakes: that time is the schedule's clock, ours may differ
REBUILDING_SECONDS = 0.2
PATIENT_LOOKS = 25  # at a schedule that nobody has opened: at the first start the relay is about to
LONGEST_BACKOFF_SECONDS = 5.0
LONGEST_GATHERING_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _Sent:
    """A claim that was sent and whose reply is not known."""

    request_id: str
    sent_at: float


class Claimer:
    """`max_shares`: queue -> the share of this process's slots it may hold, in strict order."""

    def __init__(
        self, pool: Pool, waiter: Waiter, *, name: str, threads: int, max_shares: Mapping[str, float], broker: Broker, conf: Conf
    ) -> None:
        self._pool, self._waiter, self._name, self._threads = pool, waiter, name, threads
        self._max_shares, self._broker, self._conf = max_shares, broker, conf
        self._unanswered: _Sent | None = None
        self._ledger_reachable = False  # asked before the first claim
        self._failures = 0
        self._wanted: frozenset[str] | None = None  # queues that had more to give than their share; None: any queue
        self._claim_seconds = 0.0  # what the last claim took, its start in the ledger included
        self._worth_claiming = 0  # free threads that make the next claim worth its cost while a backlog is known; 0: none is

    def run(self, orders: Orders) -> None:
        """Until there is an order to drain. From that instant nothing is claimed; a claim then under way is given back."""
        while orders.current() is Order.RUN:
            pause = self._turn(orders)
            if pause > 0:
                self._waiter.wait(pause)
        self._give_back_unanswered()

    def thread_is_free(self, queue: str) -> None:
        """A thread has become free ("" at its start): worth waking up for only when that makes a claim possible."""
        if self._wanted is None or queue in self._wanted or not queue:
            self._waiter.interrupt()

    # -- one turn: -> seconds to wait before the next

    def _turn(self, orders: Orders) -> float:
        try:
            pause = self._claim_and_start(orders)
        except ScheduleLost as error:  # the relay opens it within its interval
            self._failures += 1
            if self._failures > PATIENT_LOOKS:
                logs.schedule_trouble("claimer", error)
            return REBUILDING_SECONDS
        except ScheduleError as error:
            logs.schedule_trouble("claimer", error)
            return self._back_off()
        except DatabaseError as error:
            self._ledger_reachable = False
            connections[self._conf.database].close()
            logs.ledger_trouble("claimer", error)
            return self._back_off()
        self._failures = 0
        return pause

    def _claim_and_start(self, orders: Orders) -> float:
        if not self._ledger_reachable:
            self._probe_ledger()
        if self._unanswered is not None:
            sent = self._unanswered
            claims = self._broker.resume(sent.request_id)
            self._unanswered = None
            self._begin(claims, sent.sent_at, orders)
            return 0
        if self._worth_claiming:
            # A claim costs much the same for one job as for many. So, with a backlog, more threads are waited for, and for no longer
            # than a claim takes: what is lost by waiting is never more than what a claim for each thread would lose.
            self._pool.wait_for_free(self._worth_claiming, min(self._claim_seconds, LONGEST_GATHERING_SECONDS))
        self._wanted = None  # before the look at the pool, so that no thread becomes free unseen
        shares = self._free_shares()
        if not shares:
            return LONGEST_WAIT_SECONDS
        self._wanted = frozenset()
        request = ClaimRequest(secrets.token_hex(12), shares, self._pool.free, sleeper=self._name)
        self._unanswered = _Sent(request.request_id, time.monotonic())
        reply = self._broker.claim(request)
        failpoints.hit("D1")
        sent, self._unanswered = self._unanswered, None
        self._begin(reply.claims, sent.sent_at, orders)
        self._claim_seconds = time.monotonic() - sent.sent_at
        pause = self._pause_after(request, reply)
        backlog = bool(reply.claims) and (pause == 0 or bool(self._wanted))
        self._worth_claiming = self._pool.free + max(1, self._pool.busy // 2) if backlog else 0
        return pause

    def _begin(self, claims: Sequence[Claim], sent_at: float, orders: Orders) -> None:
        if not claims:
            return
        if orders.current() is not Order.RUN:
            self._give_back(claims)
            return
        try:
            for job in start_claims(claims, broker=self._broker, conf=self._conf, sent_at=sent_at):
                self._pool.post(job)
        except DatabaseError:
            self._give_back(claims)  # whether the start took effect is unknown: the reaper looks at the row
            raise

    def _pause_after(self, request: ClaimRequest, reply: ClaimReply) -> float:
        if reply.rebuilding:
            return REBUILDING_SECONDS
        taken: dict[str, int] = {}
        for claim in reply.claims:
            taken[claim.queue] = taken.get(claim.queue, 0) + 1
        if reply.more or len(reply.claims) >= request.limit:
            return 0  # there may be more work, and a thread may have become free meanwhile
        asked = {share.queue: share.limit for share in request.shares}
        # A queue at its share may have more: the next job of it that ends makes a claim possible.
        self._wanted = frozenset(queue for queue in self._max_shares if taken.get(queue, 0) >= asked.get(queue, 0))
        if any(share.queue in self._wanted for share in self._free_shares()):
            return 0  # one ended while we claimed
        if reply.next_wakeup_us is None:
            return LONGEST_WAIT_SECONDS
        return min(LONGEST_WAIT_SECONDS, max(SHORTEST_WAIT_SECONDS, reply.next_wakeup_us / 1e6 - time.time()))

    def _free_shares(self) -> tuple[QueueShare, ...]:
        return free_shares(self._max_shares, self._pool.running(), free=self._pool.free, threads=self._threads)

    # -- trouble

    def _probe_ledger(self) -> None:
        with connections[self._conf.database].cursor() as cursor:
            cursor.execute("SELECT 1")
        self._ledger_reachable = True

    def _back_off(self) -> float:
        self._failures += 1
        return backoff_seconds(self._failures - 1, cap_seconds=LONGEST_BACKOFF_SECONDS)

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """Not started, or nobody knows: the leases expire now, and the reaper settles each by its row."""
        try:
            self._broker.postpone([claim.token for claim in claims], 0)
        except ScheduleError as error:
            logs.schedule_trouble("claimer", error)  # they expire by themselves

    def _give_back_unanswered(self) -> None:
        if self._unanswered is None:
            return
        try:
            self._give_back(self._broker.resume(self._unanswered.request_id))
        except ScheduleError as error:
            logs.schedule_trouble("claimer", error)
        self._unanswered = None
