"""The broker contract: the verbs by which everything else speaks to the schedule.

The same contract suite (`tests/contract/test_broker.py`) runs over every implementation. All verbs are idempotent:
publish by job id; ack, release, postpone, renew and reap by claim token; claim by request id. A verb never sees a payload,
a tenant id as such, or a secret: it sees job ids, lane keys, queues, task numbers and costs.

Units: times are integer microseconds (`_us`) unless the name says otherwise; cost and weight are integer thousandths.

Errors of every verb (see exceptions.py): `ScheduleUnavailable` (transient: no connection, LOADING, READONLY, BUSY, time budget
used up ...; whether the verb took effect is unknown, repeating it is harmless), `ScheduleLost` (no epoch in the store: it was lost,
or never opened), `EpochMoved` (only when the caller passed an `epoch` that is not the current one).
A verb called without `epoch` uses the broker's cached epoch and, told "moved", reads the new one and repeats once:
leases keep their tokens and jobs their ids across a rebuild, so that is safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal
from uuid import UUID

PRIORITY_RANGE = (-100, 100)
COST_RANGE = (1, 1_000_000)  # thousandths: 0.001 to 1000
WEIGHT_RANGE = (10, 1_000_000)  # thousandths: 0.01 to 1000


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """What a broker must know to schedule. All processes of one namespace must agree.

    `mode` "time": a job is charged its cost x the microseconds it holds a slot (an estimate at the claim, the difference at the ack);
    "jobs": its cost, at the claim. `quantum`: what a lane of weight 1 may spend in a round: microseconds, or thousandths of cost.
    `queues`: those that `depths` shows even when nothing was published to them. `first_estimate_us`: of a lane nothing is known about;
    estimates are forgotten after `estimate_keep_us`. `clock_us`: tests pass their own time; None: the store's clock.
    """

    mode: Literal["time", "jobs"] = "time"
    quantum: int = 100_000
    queues: tuple[str, ...] = ("interactive", "default", "bulk")
    lease_us: int = 8_000_000
    first_estimate_us: int = 1_000_000
    estimate_keep_us: int = 86_400_000_000
    clock_us: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """A job as its lane sees it. `at_head` puts it before every other job of its lane (suspects)."""

    job_id: UUID
    queue: str
    lane_key: str
    task_number: int
    cost: int = 1000
    priority: int = 0
    at_head: bool = False


class Published(StrEnum):
    """What became of one publication."""

    PUBLISHED = "published"
    WAITING = "waiting"  # refused: this id already waits in a lane
    LEASED = "leased"  # refused: this id is under a lease


@dataclass(frozen=True, slots=True)
class QueueShare:
    """How many jobs of one queue a claim may take at most."""

    queue: str
    limit: int


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Take up to `limit` jobs in all, walking `shares` in the order given (strict order between queues).

    `request_id` makes the claim idempotent: the same id returns what it took the first time, while those leases live, and takes nothing
    new for two lease times.
    `sleeper` names the waiter to wake when work arrives; it is registered only when less than asked was found.
    """

    request_id: str
    shares: tuple[QueueShare, ...]
    limit: int
    sleeper: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One job taken under a lease. `token` names the lease; `charged_us` is what its lane was charged for it (mode "jobs": 0)."""

    job_id: UUID
    token: str
    queue: str
    lane_key: str
    task_number: int
    cost: int
    claimed_us: int
    charged_us: int = 0


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """What a claim found. `rebuilding`: nothing may be claimed until the leases of running rows are back.

    `next_wakeup_us`: when the next parked lane wakes by time (the schedule's clock), None when none does. `more`: a bound on the work
    of one claim was reached before the request was filled; claim again at once.
    """

    claims: tuple[Claim, ...] = ()
    next_wakeup_us: int | None = None
    more: bool = False
    rebuilding: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease to put back during a rebuild: a running row of the ledger."""

    token: str
    job_id: UUID
    queue: str
    lane_key: str
    task_number: int
    cost: int
    expires_in_us: int


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """Limits of one lane key, over all queues. They act on the backlog at once.

    `max_running` None: no cap. `paused_until_us`: 0 not paused, -1 until further notice, else the time by the schedule's clock.
    """

    weight: int = 1000
    max_running: int | None = None
    paused_until_us: int = 0


@dataclass(frozen=True, slots=True)
class Epoch:
    """The schedule's generation. `snapshot` is the ledger snapshot (text of pg_current_snapshot) up to which rows were offered."""

    id: str
    rebuilding: bool
    snapshot: str | None


@dataclass(frozen=True, slots=True)
class LaneState:
    """One lane as the scheduler sees it, for comparison in tests and for operators. Deficits in us or thousandths of cost."""

    waiting: int
    running: int
    deficit: int
    last_round: int
    due_round: int | None  # None: not in the ring
    newcomer: bool
    parked: bool


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """The whole schedule, for comparison in tests: never on a hot path. `corrupt`: entries dropped because they could not be read."""

    rounds: Mapping[str, int] = field(default_factory=dict)
    lanes: Mapping[tuple[str, str], LaneState] = field(default_factory=dict)  # (queue, lane_key) ->
    ring: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # queue -> lane keys in order of the next visit
    leases: Mapping[str, UUID] = field(default_factory=dict)  # token -> job id
    corrupt: int = 0


class Waiter(ABC):
    """Sleeps until the schedule has work for its name. One per claimer thread."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Block until woken by a publish, by `interrupt()`, or for `seconds`; True when woken. Never raises for a lost connection:
        it sleeps out the time and reconnects."""

    @abstractmethod
    def interrupt(self) -> None:
        """End a `wait` from another thread or a signal handler; also the next `wait` when none is under way."""

    @abstractmethod
    def close(self) -> None: ...


class Broker(ABC):
    """One schedule. Thread-safe; after a fork call `after_fork()` before anything else."""

    # -- jobs into lanes
    @abstractmethod
    def publish(self, publications: Sequence[Publication], *, epoch: str | None = None) -> list[Published]:
        """Put jobs into their lanes; an id already in a lane or leased is refused. One word per publication, in order.
        Allowed while rebuilding. Any number of publications: split into bounded script calls."""

    # -- jobs out of lanes
    @abstractmethod
    def claim(self, request: ClaimRequest) -> ClaimReply: ...

    @abstractmethod
    def resume(self, request_id: str) -> tuple[Claim, ...]:
        """What the claim with this request id took and still holds; empty when it never arrived. Answered for two lease times."""

    @abstractmethod
    def renew(self, tokens: Iterable[str]) -> frozenset[str]:
        """Extend leases by the lease time; the tokens that are still leased (the others are lost). Also the confirm after start."""

    @abstractmethod
    def held(self, tokens: Iterable[str]) -> frozenset[str]:
        """Which of these tokens are leased now. Changes nothing."""

    @abstractmethod
    def ack(self, tokens: Iterable[str]) -> frozenset[str]:
        """End leases of runs: the charge is settled against the seconds held. -> tokens that were held."""

    @abstractmethod
    def release(self, tokens: Iterable[str]) -> frozenset[str]:
        """End leases of claims that never ran (phantoms): the charge is refunded. The job is then absent. -> tokens that were held."""

    @abstractmethod
    def postpone(self, tokens: Iterable[str], seconds: float) -> frozenset[str]:
        """Release with a delay: the lease is set to expire then, counts against the cap meanwhile, and the reaper publishes the job."""

    @abstractmethod
    def reap(self, limit: int) -> tuple[Claim, ...]:
        """Take up to `limit` expired leases: they end here (settled as held until their expiry), oldest first."""

    # -- limits
    @abstractmethod
    def set_limits(self, limits: Mapping[str, LaneLimits]) -> None:
        """Replace the limits of these lane keys; parked lanes that may run now are woken, positions follow the new weight."""

    # -- epochs
    @abstractmethod
    def read_epoch(self) -> Epoch | None:
        """The current epoch, None when there is none (a lost or new schedule). Refreshes the cache."""

    @abstractmethod
    def begin_rebuild(self, epoch_id: str, *, replaces: str | None) -> bool:
        """Start a new epoch, empty and "rebuilding", if the current one is still `replaces` (None: there is none). False: somebody
        else did. Told twice with one id, it answers True twice."""

    @abstractmethod
    def restore_leases(self, leases: Sequence[Lease], *, epoch: str) -> None: ...

    @abstractmethod
    def open_epoch(self, epoch_id: str) -> None:
        """End "rebuilding": claims are answered again. EpochMoved when the epoch is another."""

    @abstractmethod
    def store_snapshot(self, snapshot: str, *, epoch: str) -> None:
        """Remember up to which ledger snapshot every row was offered. EpochMoved when the epoch is another."""

    @abstractmethod
    def discard_old_epochs(self) -> int:
        """Remove what older epochs left behind, in bounded steps; -> entries removed. For the keeper that rebuilt."""

    # -- around
    @abstractmethod
    def open_waiter(self, name: str) -> Waiter: ...

    @abstractmethod
    def check(self) -> None:
        """Raise `BrokerMisconfigured` when the store must not be used (version, eviction policy)."""

    @abstractmethod
    def state(self) -> ScheduleState: ...

    @abstractmethod
    def depths(self) -> Mapping[str, Mapping[str, int]]:
        """queue -> {"lanes": in the ring, "parked": lanes, "waiting": jobs, "running": jobs}. Cheap: O(queues)."""

    @abstractmethod
    def after_fork(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...
