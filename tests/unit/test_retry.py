"""L01: the retry policy is pure, monotone, capped before it can overflow, and never loses a job."""

from __future__ import annotations

import pytest

from django_tenant_queue.retry import backoff_seconds, infrastructure_wait_seconds, wait_before_retry


def no_jitter() -> float:
    return 0.0


def test_waits_double_from_two_seconds() -> None:
    """L01: 2, 4, 8, 16, 32 s after the first to the fifth failure."""
    assert [backoff_seconds(n, cap_seconds=3600, random=no_jitter) for n in range(1, 6)] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize("cap", [0.5, 1, 60, 3600, 1e9, 1e300])
def test_wait_never_falls_and_never_passes_the_cap(cap: float) -> None:
    """L01: failures 1 to 2000."""
    waits = [backoff_seconds(n, cap_seconds=cap, random=no_jitter) for n in range(1, 2001)]
    assert waits == sorted(waits) and waits[-1] == cap


@pytest.mark.parametrize("failure", [-5, 0, 1])
def test_a_failure_number_below_one_counts_as_the_first(failure: int) -> None:
    assert backoff_seconds(failure, cap_seconds=3600, random=no_jitter) == 2


def test_jitter_adds_up_to_half_a_second() -> None:
    assert backoff_seconds(1, cap_seconds=3600, random=lambda: 0.999) == pytest.approx(2.4995)


def test_the_sixth_failure_is_the_last() -> None:
    decide = [wait_before_retry(n, max_retries=5, asked_seconds=None, cap_seconds=3600, random=no_jitter) for n in range(6)]
    assert decide == [2, 4, 8, 16, 32, None]


@pytest.mark.parametrize("asked", [float("nan"), float("inf"), -1.0])
def test_an_impossible_wait_falls_back_to_the_backoff(asked: float) -> None:
    """L01: Retry(after=NaN) must not lose the job."""
    assert wait_before_retry(0, max_retries=5, asked_seconds=asked, cap_seconds=3600, random=no_jitter) == 2


def test_an_asked_wait_is_bounded_by_a_year() -> None:
    assert wait_before_retry(0, max_retries=5, asked_seconds=1e30, cap_seconds=3600, random=no_jitter) == 366 * 86_400


def test_infrastructure_errors_have_a_budget_of_their_own() -> None:
    waits = [infrastructure_wait_seconds(n, budget=100, random=no_jitter) for n in (0, 1, 50, 99, 100)]
    assert waits == [0.05, 0.1, 5.0, 5.0, None]
