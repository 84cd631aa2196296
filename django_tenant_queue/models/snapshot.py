"""Snapshot: which transactions a reader of the ledger could see, and what became visible between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering


@total_ordering
@dataclass(frozen=True, slots=True)
class Snapshot:
    """`pg_current_snapshot()`: transactions below `xmax` were over, except those in `xip`.

    Snapshots of one server are totally ordered: a later one sees everything an earlier one saw.
    """

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Read PostgreSQL's text, `xmin:xmax:xip,xip,...`. Raises ValueError when it is something else."""
        xmin, xmax, xip = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(number) for number in xip.split(",") if number))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    def __lt__(self, other: Snapshot) -> bool:
        return self._age < other._age

    @property
    def _age(self) -> tuple[int, int]:
        return self.xmax, -len(self.xip)  # with the same xmax the later one has fewer still open

    def sees(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.xip

    def since(self, previous: Snapshot) -> Difference:
        """The transactions that this snapshot sees and `previous`, an earlier one, did not."""
        ended = tuple(sorted(set(previous.xip) - set(self.xip)))
        return Difference(ended, previous.xmax, self.xmax, tuple(xid for xid in self.xip if xid >= previous.xmax))


@dataclass(frozen=True, slots=True)
class Difference:
    """Transactions between two snapshots: those in `ended`, and all from `low` up to and without `high` except those in `still_open`."""

    ended: tuple[int, ...]
    low: int
    high: int
    still_open: Sequence[int]

    def __bool__(self) -> bool:
        return bool(self.ended) or self.low < self.high
