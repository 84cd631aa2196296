"""Who may move a job: the table of the design as data. What a job's state is, and which actors may move it then.

A job's state has three parts: what its row says, where the schedule has it, and what became of the process that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

NOT_RUNNING = ("queued", "due", "later", "terminal")  # "due", "later": scheduled or retrying, by their due time
PLACES = ("absent", "lane", "leased", "expired", "unacked", "unacked, expired", "lost")
# leased: by a claim; expired: by one whose time is over; unacked: by a run that was settled; lost: there is no schedule, or an old one
RUNNING_PLACES = ("leased", "expired", "unleased", "silent", "lost")  # of the row's own token; "silent": Redis does not answer
HOLDERS = ("started", "begun", "broken", "died", "stopped", "nobody")
# started and not confirmed; body begun; begun and its boundary broken; killed by nobody here; ended otherwise; host lost


@dataclass(frozen=True, slots=True)
class State:
    ledger: str
    place: str
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """`movers`: the actors that may change the job's row or its place in the schedule."""

    name: str
    ledger: tuple[str, ...]
    place: tuple[str, ...]
    movers: tuple[str, ...]
    holder: tuple[str, ...] = ("",)

    def matches(self, state: State) -> bool:
        return state.ledger in self.ledger and state.place in self.place and state.holder in self.holder


TABLE = (
    # The late start of a claim whose lease is lost may start any queued row; it gives it back at confirm.
    Row("committed", ("queued",), ("absent",), ("publish", "relay", "reconciler", "start", "cancel")),
    Row("due", ("due",), ("absent",), ("relay", "cancel")),
    Row("not due", ("later",), ("absent",), ("cancel",)),
    Row("in lane", ("queued",), ("lane",), ("claim", "start", "cancel")),
    Row("claimed", ("queued",), ("leased",), ("start", "cancel")),
    Row("claim expired", ("queued",), ("expired",), ("reaper", "start", "cancel")),
    Row("stray entry", ("terminal", "later", "due"), ("lane",), ("claim", "relay", "cancel")),
    Row("stray claim", ("terminal", "later", "due"), ("leased",), ("start", "relay", "cancel")),
    Row("stray claim expired", ("terminal", "later", "due"), ("expired",), ("reaper", "start", "relay", "cancel")),
    Row("settled", NOT_RUNNING, ("unacked",), ("settle", "lease keeper", "relay", "start", "cancel")),
    Row("settled, expired", NOT_RUNNING, ("unacked, expired",), ("settle", "lease keeper", "reaper", "relay", "start", "cancel")),
    Row("finished", ("terminal",), ("absent",), ()),
    Row("about to begin", ("running",), ("leased",), (), ("started",)),
    Row("lost at confirm", ("running",), ("unleased",), ("confirm",), ("started",)),
    Row("silent at confirm", ("running",), ("silent",), ("confirm",), ("started",)),
    Row("body alive", ("running",), ("leased",), ("settle",), ("begun",)),
    Row("boundary broken", ("running",), ("leased",), ("settle",), ("broken",)),
    Row("process died", ("running",), ("leased",), ("lease keeper",), ("died",)),
    Row("process stopped", ("running",), ("leased",), ("lease keeper",), ("stopped",)),
    Row("host lost", ("running",), ("leased",), (), ("nobody",)),
    Row("run expired", ("running",), ("expired",), ("reaper", "settle", "lease keeper"), HOLDERS),
    Row("unleased", ("running",), ("unleased",), ("reconciler", "start", "claim", "reaper", "settle", "lease keeper"), HOLDERS[1:]),
    # By the fence whoever holds a row may move it, also while there is no schedule.
    Row("schedule lost", NOT_RUNNING, ("lost",), ("relay", "start", "cancel")),
    Row("schedule lost, running", ("running",), ("lost",), ("relay", "confirm", "settle", "lease keeper"), HOLDERS),
)


def row_of(state: State) -> Row:
    """The one row that matches."""
    (row,) = (row for row in TABLE if row.matches(state))
    return row


def possible_states() -> list[State]:
    running = [
        State("running", place, holder) for place, holder in product(RUNNING_PLACES, HOLDERS) if place != "silent" or holder == "started"
    ]
    return [State(ledger, place) for ledger, place in product(NOT_RUNNING, PLACES)] + running
