"""The pause between two attempts."""

from __future__ import annotations

import pytest

from django_tenant_queue.brokers.backoff import backoff_seconds


@pytest.mark.parametrize(
    ("attempt", "shortest", "longest"), [(0, 0.025, 0.05), (1, 0.05, 0.1), (5, 0.8, 1.6), (8, 2.5, 5.0), (10**9, 2.5, 5.0)]
)
def test_it_doubles_up_to_the_cap_and_half_of_it_is_random(attempt: int, shortest: float, longest: float) -> None:
    assert backoff_seconds(attempt, draw=lambda: 0.0) == pytest.approx(shortest)
    assert backoff_seconds(attempt, draw=lambda: 1.0) == pytest.approx(longest)


def test_a_fleet_does_not_come_back_at_one_moment() -> None:
    """C07: with jitter."""
    assert len({backoff_seconds(3) for _ in range(100)}) > 90
