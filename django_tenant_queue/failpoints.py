"""Named places where a test may let the code die, raise, sleep or stop. Switched off, a place costs one dict look-up.

Other processes are switched on through the environment, which they inherit:

    DTQ_FAILPOINTS="H1=exit9:once:task=shop.tasks.import_orders,/tmp/counters;D1=sleep(0.5),/tmp/counters"

that is `place=action[:option...][,directory]`, several separated by `;`. Actions: `exit9` (SIGKILL to itself), `raise`, `sleep(seconds)`,
`stop` (SIGSTOP to itself). Options: `once`, `nth=3` (only the third hit that passes the filter, counted over all processes),
`task=name`. The directory holds the counts, so that a test can assert that its fault fired. In this process: `with active("E2", callable)`.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "DTQ_FAILPOINTS"
PLACES = {
    "E1": "before the enqueue commits",
    "E2": "enqueue committed and not published",
    "E3": "published and the reply lost",
    "D1": "claimed and the reply unread",
    "D2": "claimed, before start",
    "D3": "started and the body not begun",
    "H1": "inside the body",
    "H2": "body done, before settle",
    "H3": "settled, before COMMIT",
    "H4": "COMMIT sent and its reply lost",
    "H5": "committed, before ack",
    "F1": "rolled back, before the failure is recorded",
    "F2": "failure recorded, before anything else",
    "F3": "dead letter written, before the schedule is cleaned",
    "M1": "in a sweep of the reaper",
    "M2": "in the relay",
    "M3": "in the scheduler",
    "M4": "in a replay",
    "S1": "between fork and register",
    "S2": "a death seen and not yet handled",
    "S3": "while draining",
}
_RULE = re.compile(r"(?P<place>\w+)=(?P<action>exit9|raise|stop|sleep\([\d.]+\))(?P<options>(?::[^:,]+)*)(?:,(?P<directory>.+))?")

_active: dict[str, _Switch] = {}


class FailpointFired(RuntimeError):
    """What the action `raise` raises."""


def hit(place: str, **facts: Any) -> None:
    """Pass a place. `facts` are written down when it fires; `task` is what the filter looks at."""
    switch = _active.get(place)
    if switch is not None:
        switch.hit(facts)


@dataclass(frozen=True, slots=True)
class Rule:
    """When a place fires and what happens then. `nth` None: at every hit. `counters`: directory of the counts, shared by processes."""

    place: str
    action: str | Callable[..., Any]  # text as above, or a callable that gets the facts as keyword arguments
    nth: int | None = None
    task: str | None = None
    counters: Path | None = None

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise ValueError(f"{self.place!r} is not a failpoint; there are {', '.join(PLACES)}.")

    @property
    def text(self) -> str:
        """As `DTQ_FAILPOINTS` has it. Callables cannot be written down."""
        if callable(self.action):
            raise TypeError(f"Failpoint {self.place} has a callable as its action: it cannot be switched on in another process.")
        options = [f"nth={self.nth}"] * (self.nth is not None) + [f"task={self.task}"] * (self.task is not None)
        return ":".join([f"{self.place}={self.action}", *options]) + (f",{self.counters}" if self.counters else "")


def as_text(rules: Iterable[Rule]) -> str:
    """The value of `DTQ_FAILPOINTS` that switches these rules on in a child process."""
    return ";".join(rule.text for rule in rules)


def parse(text: str) -> list[Rule]:
    """Read `DTQ_FAILPOINTS`. Raises ValueError with the part that cannot be read."""
    return [_parse_rule(part.strip()) for part in text.split(";") if part.strip()]


def _parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{VARIABLE}: {text!r} does not read as place=action[:option...][,directory].")
    options: dict[str, Any] = {}
    for option in filter(None, match["options"].split(":")):
        name, _, value = option.partition("=")
        if name == "once" and not value:
            options["nth"] = 1
        elif name == "nth" and value.isdigit():
            options["nth"] = int(value)
        elif name == "task" and value:
            options["task"] = value
        else:
            raise ValueError(f"{VARIABLE}: {option!r} in {text!r} is not an option; there are once, nth=N and task=NAME.")
    return Rule(match["place"], match["action"], counters=Path(match["directory"]) if match["directory"] else None, **options)


@dataclass(slots=True)
class _Switch:
    rule: Rule
    hits: itertools.count[int] = field(default_factory=lambda: itertools.count(1))  # next() is atomic among threads

    def hit(self, facts: dict[str, Any]) -> None:
        rule = self.rule
        if rule.task is not None and facts.get("task") != rule.task:
            return
        ordinal = next(self.hits) if rule.counters is None else _append(rule.counters / f"{rule.place}.hits", "hit")
        if rule.nth is not None and ordinal != rule.nth:
            return
        if rule.counters is not None:  # before the action: nothing can be written after it
            _append(rule.counters / f"{rule.place}.fired", json.dumps({"pid": os.getpid(), **facts}, default=str))
        _act(rule, facts)


def _act(rule: Rule, facts: dict[str, Any]) -> None:
    if callable(rule.action):
        rule.action(**facts)
    elif rule.action == "exit9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif rule.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif rule.action == "raise":
        raise FailpointFired(f"{rule.place}: {PLACES[rule.place]}")
    else:
        time.sleep(float(rule.action.removeprefix("sleep(").removesuffix(")")))


def _append(path: Path, line: str) -> int:
    """Append a line; the number of lines then. The lock makes the number unique among processes and threads."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(line + "\n")
        file.flush()
        file.seek(0)
        return sum(1 for _ in file)


# -- what tests ask


def fired(counters: Path, place: str) -> list[dict[str, Any]]:
    """The facts of each time that the place fired, in any process: `pid` and what `hit` was given."""
    path = counters / f"{place}.fired"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def active(place: str, action: str | Callable[..., Any], **options: Any) -> Iterator[None]:
    """Switch a place on in this process (options: nth, task, counters).

    Raises RuntimeError unless settings.DEBUG is on or the environment has DTQ_FAILPOINTS (empty will do)."""
    if not _allowed():
        raise RuntimeError(f"Failpoints are for tests: set settings.DEBUG, or {VARIABLE} in the environment (empty will do).")
    before, _active[place] = _active.get(place), _Switch(Rule(place, action, **options))
    try:
        yield
    finally:
        del _active[place]
        if before is not None:
            _active[place] = before


def _allowed() -> bool:
    if VARIABLE in os.environ:
        return True
    from django.conf import settings

    return settings.configured and bool(settings.DEBUG)


_active.update((rule.place, _Switch(rule)) for rule in parse(os.environ.get(VARIABLE, "")))
