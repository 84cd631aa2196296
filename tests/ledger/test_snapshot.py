"""Snapshots: their order, and what became visible between two of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_tenant_queue.models.snapshot import Snapshot


@pytest.mark.parametrize("text", ["10:10:", "10:20:10,14,15"])
def test_a_snapshot_reads_and_writes_as_postgres_does(text: str) -> None:
    assert str(Snapshot.parse(text)) == text


def test_of_two_with_one_end_the_later_has_fewer_open() -> None:
    assert Snapshot.parse("5:20:5,7") < Snapshot.parse("7:20:7") < Snapshot.parse("20:20:") < Snapshot.parse("20:21:")


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Snapshots taken while transactions 1..n begin and end in any order."""
    begun, open_, taken = 0, [], []
    for step in draw(st.lists(st.sampled_from(["begin", "end", "take"]), max_size=40)):
        if step == "begin":
            begun += 1
            open_.append(begun)
        elif step == "end" and open_:
            open_.remove(draw(st.sampled_from(open_)))
        ended = [xid for xid in range(1, begun + 1) if xid not in open_]
        xmax = max(ended, default=0) + 1  # Postgres: the latest completed, plus one
        if step == "take":
            taken.append(Snapshot(min([*open_, xmax]), xmax, tuple(xid for xid in open_ if xid < xmax)))
    return taken


@given(histories())
def test_each_transaction_is_in_exactly_one_difference_after_it_ended(taken: list[Snapshot]) -> None:
    offered: list[int] = []
    for before, now in pairwise(taken):
        assert before <= now
        difference = now.since(before)
        between = set(range(difference.low, difference.high)) - set(difference.still_open)
        offered += [*difference.ended, *between]
    seen = {xid for snapshot in taken[-1:] for xid in range(1, snapshot.xmax) if snapshot.sees(xid)}
    known = {xid for snapshot in taken[:1] for xid in range(1, snapshot.xmax) if snapshot.sees(xid)}
    assert sorted(offered) == sorted(seen - known)
