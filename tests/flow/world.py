"""A small world of one ledger, one schedule and the processes that hold jobs. Every action is checked against the table."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from django_tenant_queue import enqueue, failpoints, tenant_context
from django_tenant_queue.brokers.base import Broker, Claim, ClaimRequest, Publication, QueueShare
from django_tenant_queue.brokers.memory import MemoryBroker
from django_tenant_queue.conf import Conf
from django_tenant_queue.exceptions import ScheduleError, ScheduleUnavailable
from django_tenant_queue.handback import HeldJob, hand_back, hand_back_suspects
from django_tenant_queue.keepers import Reaper, Reconciler, Relay
from django_tenant_queue.models import Job
from django_tenant_queue.models.moves import StartedJob
from tests import jobs, oracle
from tests.conftest import Clock
from tests.redis_servers import admin, delete_namespace
from tests.waiting import eventually
from tests.workers import StepWorker

from .table import State, row_of

TERMINAL = ("succeeded", "cancelled", "dead")
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "works": (jobs.leave_effect, {}),
    "fails once": (jobs.leave_effect, {"fail_until_fence": 1}),
    "fails": (jobs.never_succeed, {}),
    "cancels": (jobs.leave_effect, {"cancel": True}),
    "breaks": (jobs.break_out, {}),
}


@dataclass
class Holder:
    """A process with one claim: what it knows, and what became of it."""

    claim: Claim
    started: StartedJob | None = None
    state: str = "claimed"  # then one of table.HOLDERS


class FaultyBroker:
    """The broker as its holders see it: verbs named in `silent` do not answer."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self.silent = broker, set[str]()

    def __getattr__(self, verb: str) -> Any:
        if verb in self.silent:
            return self._no_answer
        return getattr(self._broker, verb)

    def _no_answer(self, *args: object, **options: object) -> None:
        raise ScheduleUnavailable


class World:
    def __init__(self, broker: Broker, conf: Conf, clock: Clock) -> None:
        self.broker, self.conf, self.clock = broker, conf, clock
        self.faulty = FaultyBroker(broker)
        self.worker = StepWorker(self.faulty, conf)  # type: ignore[arg-type]
        self.relay_keeper, self.reaper_keeper, self.reconciler_keeper = Relay(), Reaper(), Reconciler()
        self.client = admin()
        self.enqueued: list[UUID] = []
        self.kinds: dict[UUID, str] = {}
        self.holders: list[Holder] = []
        self.old_snapshot: str | None = None
        self.rolled_back = False
        self.moved: Counter[tuple[str, str]] = Counter()
        self.relay()

    # -- what is

    def rows(self) -> dict[UUID, Job]:
        return {job.id: job for job in Job.objects.all()}

    def places(self) -> tuple[dict[UUID, str], dict[str, int]] | None:
        """(job id -> "w" or its token, token -> when it expires); None when there is no schedule."""
        epoch = self.broker.read_epoch()
        if epoch is None or epoch.rebuilding or self.rolled_back:
            return None
        if isinstance(self.broker, MemoryBroker):
            schedule = self.broker._schedule
            expiry = {token: lease.expires_us for token, lease in schedule.leases.items()}
            return {job_id: token or "w" for job_id, token in schedule.jobs.items()}, expiry
        client, root = self.client, f"{{dtq:{self.conf.namespace}:0}}:{epoch.id}:"
        placed = {UUID(bytes=job_id): token.decode() for job_id, token in client.hgetall(root + "jobs").items()}
        return placed, {token.decode(): int(us) for token, us in client.zrange(root + "expiry", 0, -1, withscores=True)}

    def look(self) -> dict[UUID, tuple[State, tuple[Any, ...]]]:
        """Of each job: its state in the table, and what an actor that moves it changes."""
        places = self.places()
        return {job_id: (self.state_of(job, places), self.traces_of(job, places)) for job_id, job in self.rows().items()}

    def traces_of(self, job: Job, places: Any) -> tuple[Any, ...]:
        return job.status, job.fence, None if places is None else places[0].get(job.id)

    def state_of(self, job: Job, places: Any) -> State:
        if job.status == "running":
            return State("running", self.place_of_token(job.claim_token, places), self.holder_of(job))
        ledger = "terminal" if job.status in TERMINAL else "queued" if job.status == "queued" else self.waits(job)
        if places is None:
            return State(ledger, "lost")
        where = places[0].get(job.id)
        if where in (None, "w"):
            return State(ledger, "absent" if where is None else "lane")
        settled = any(holder.started and holder.claim.token == where for holder in self.holders)
        expired = places[1][where] <= self.clock.us
        return State(ledger, ("unacked, expired" if expired else "unacked") if settled else ("expired" if expired else "leased"))

    def place_of_token(self, token: str, places: Any) -> str:
        if "renew" in self.faulty.silent:
            return "silent"
        if places is None:
            return "lost"
        if token not in places[1]:
            return "unleased"
        return "expired" if places[1][token] <= self.clock.us else "leased"

    def holder_of(self, job: Job) -> str:
        return next((h.state for h in self.holders if h.started and (h.started.id, h.started.fence) == (job.id, job.fence)), "nobody")

    @staticmethod
    def waits(job: Job) -> str:
        """A row whose time comes in a moment is waited for: an actor must not find it otherwise than we did."""
        if timezone.now() < job.due_at < timezone.now() + timedelta(seconds=0.2):
            eventually(lambda: job.due_at <= timezone.now())
        return "due" if job.due_at <= timezone.now() else "later"

    # -- the rule: an actor moves only jobs whose row of the table names it

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        before = self.look()
        yield
        self.check_moves(actor, before)

    def check_moves(self, actor: str, before: dict[UUID, tuple[State, tuple[Any, ...]]]) -> None:
        for job_id, (state, traces) in self.look().items():
            if job_id not in before or before[job_id][1] == traces:
                continue
            was = before[job_id][0]
            row = row_of(was)
            assert actor in row.movers, f"{actor} moved a job that is {row.name!r}: {before[job_id]} -> {(state, traces)}"
            assert traces[1] >= before[job_id][1][1], "a fence went back"
            if row.name == "boundary broken":
                assert traces[0] == "dead"
            self.moved[row.name, actor] += 1

    # -- doors

    def enqueue(self, kind: str = "works", *, published: bool = True, delay: float | None = None, tenant: str = "acme") -> UUID:
        task, payload = KINDS[kind]
        with tenant_context(tenant):
            if published:
                job = enqueue(task, payload, delay=delay)
            else:
                with failpoints.active("E2", "raise"):
                    job = enqueue(task, payload, delay=delay)
        self.enqueued.append(job.id)
        self.kinds[job.id] = kind
        return job.id

    def publish(self, job_id: UUID) -> None:
        """On commit: at once, late, or a second time. What was read as queued and has moved since makes a stray entry."""
        if Job.objects.get(pk=job_id).status != "queued":
            self.put(job_id)
        else:
            with self.acting("publish"):
                self.put(job_id)

    def forge(self, job_id: UUID, lane: str | None = None) -> None:
        """An entry that ought not to be there."""
        self.put(job_id, lane)

    def put(self, job_id: UUID, lane: str | None = None) -> None:
        job = Job.objects.get(pk=job_id)
        try:
            self.broker.publish([Publication(job.id, job.queue, lane or job.lane_key, 1)])
        except ScheduleError:
            assert self.places() is None

    def cancel(self, job_id: UUID) -> None:
        with self.acting("cancel"):
            Job.objects.cancel([job_id], reason="an operator said so")

    # -- processes that hold jobs

    def claim(self, limit: int = 5, *, heard: bool = True) -> None:
        """`heard`: the reply arrived; otherwise it is asked about, and that reply may arrive."""
        with self.acting("claim"):
            request = ClaimRequest(secrets.token_hex(12), tuple(QueueShare(queue, limit) for queue in self.conf.queue_names), limit)
            try:
                claims = self.broker.claim(request).claims
            except ScheduleError:
                assert self.places() is None
                return
            assert self.broker.resume(request.request_id) == claims
            self.holders += [Holder(claim) for claim in claims] if heard else []

    def start(self, between: Callable[[], None] = lambda: None, *, silent: bool = False, late: bool = False, newest: bool = False) -> None:
        """Start every claim in hand, or the newest. `between` happens after the ledger started them and before the schedule confirms."""
        holders = [holder for holder in self.holders if holder.state == "claimed"][-1 if newest else 0 :]
        if not holders:
            return
        before = self.look()

        def on_the_way(**facts: object) -> None:
            nonlocal before
            self.know_what_started(holders)
            self.check_moves("start", before)
            between()
            self.faulty.silent = {"renew"} if silent else set()
            before = self.look()

        with failpoints.active("D3", on_the_way):
            began = self.worker.start([holder.claim for holder in holders], sent_seconds_ago=self.conf.lease_seconds if late else 0.0)
        self.faulty.silent = set()
        for holder in holders:
            begins = holder.started is not None and (holder.started.id, holder.started.fence) in {(job.id, job.fence) for job in began}
            holder.state = ("broken" if self.kinds[holder.claim.job_id] == "breaks" else "begun") if begins else "gave back"
        self.check_moves("confirm", before)
        self.holders = [holder for holder in self.holders if holder.state != "gave back"]

    def know_what_started(self, holders: list[Holder]) -> None:
        """The rows that carry our token, as their start returned them."""
        for holder in holders:
            job = Job.objects.filter(pk=holder.claim.job_id, status="running", claim_token=holder.claim.token).first()
            if job is not None:
                values = (job.envelope, job.lane_key, job.fence, job.claim_token, job.seal, job.seal_key)
                holder.started = StartedJob(*values, job.failures, job.crashes, job.suspect, job.infrastructure)
                holder.state = "started"

    def settle(self, holder: Holder, *, acked: bool = True, keep: bool = False) -> None:
        """Run the body to its end; `acked`: the schedule hears of it. `keep`: the process has not cleared its slot yet."""
        assert holder.started
        with self.acting("settle"):
            self.faulty.silent = set() if acked else {"ack"}
            self.worker.run(holder.started)
            self.faulty.silent = set()
        if not keep:
            self.holders.remove(holder)

    def lease_keeper(self) -> None:
        """What it does about processes that are dead."""
        dead = [holder for holder in self.holders if holder.state in ("died", "stopped")]
        held = {h.claim.token: HeldJob(h.started.id, h.started.fence, h.started.token, begun=h.state == "died") for h in dead if h.started}
        died = [held[h.claim.token] for h in dead if h.state == "died"]
        stopped = [held[h.claim.token] for h in dead if h.state == "stopped"]
        with self.acting("lease keeper"):
            if died:
                hand_back_suspects(died, broker=self.broker, conf=self.conf, how="signal 9 (SIGKILL)")
            if stopped:
                hand_back(stopped, broker=self.broker)
        self.holders = [holder for holder in self.holders if holder not in dead]

    def end_process(self, holder: Holder, how: str) -> None:
        """`how`: "died", killed by nobody here; "stopped", killed by us, so that nobody is a suspect."""
        holder.state = how

    def lose_host(self, holder: Holder) -> None:
        self.holders.remove(holder)

    # -- keepers

    def relay(self) -> None:
        with self.acting("relay"):
            self.relay_keeper.step(self.broker, self.conf)
            self.rolled_back = False
        epoch = self.broker.read_epoch()
        self.old_snapshot = self.old_snapshot or (epoch.snapshot if epoch else None)

    def reap(self, *, dies: bool = False) -> None:
        with self.acting("reaper"):
            self.survive(lambda: self.reaper_keeper.step(self.broker, self.conf), "M1" if dies else None)

    def reconcile(self) -> None:
        with self.acting("reconciler"):
            self.survive(lambda: self.reconciler_keeper.step(self.broker, self.conf), None)

    def survive(self, step: Callable[[], object], place: str | None) -> None:
        try:
            if place is None:
                step()
            else:
                with failpoints.active(place, "raise"):
                    step()
        except failpoints.FailpointFired:
            pass
        except ScheduleError:
            assert self.places() is None

    # -- the weather

    def jump(self, seconds: float) -> None:
        """Both clocks."""
        self.clock.advance(seconds)
        Job.objects.filter(status__in=("scheduled", "retrying")).update(due_at=F("due_at") - timedelta(seconds=seconds))

    def make_due(self) -> None:
        """The ledger's clock only."""
        Job.objects.filter(status__in=("scheduled", "retrying")).update(due_at=timezone.now())

    def flush(self) -> None:
        if isinstance(self.broker, MemoryBroker):
            self.broker.lose()
        else:
            delete_namespace(self.conf.namespace)
        self.rolled_back = False

    def roll_back(self) -> None:
        """Redis comes back with an old snapshot, and with whatever else it has."""
        epoch = self.broker.read_epoch()
        if epoch and epoch.snapshot and self.old_snapshot and self.old_snapshot != epoch.snapshot:
            self.broker.store_snapshot(self.old_snapshot, epoch=epoch.id)
            self.rolled_back = True

    # -- the end

    def until_quiet(self) -> None:
        """Processes that live end their bodies, late as they are; then keepers and one worker go on until every job is terminal."""
        for holder in list(self.holders):
            if holder.state in ("begun", "broken"):
                self.settle(holder)
        for _ in range(40):
            self.jump(3600)
            for step in (self.relay, self.reap, self.reconcile, self.lease_keeper, self.claim, self.start):
                step()
            for holder in list(self.holders):
                if holder.state in ("begun", "broken"):
                    self.settle(holder)
            if all(state.ledger == "terminal" and state.place == "absent" for state, _ in self.look().values()):
                break
        assert oracle.check(self.enqueued, broker=self.broker) == []

    def close(self) -> None:
        self.flush()
        self.client.close()
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM shop_jobeffect; DELETE FROM tenant_queue_deadletter; DELETE FROM tenant_queue_job")


def holder_in(world: World, *states: str) -> Holder:
    found = [holder for holder in world.holders if holder.state in states]
    if not found:
        pytest.fail(f"no process is {' or '.join(states)}")
    return found[-1]
