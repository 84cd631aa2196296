"""Pure policy: how many failures, which error -> wait and run again, or a dead letter."""

from __future__ import annotations

import math
from collections.abc import Callable

BASE_SECONDS = 1.0
JITTER_SECONDS = 0.5


def backoff_seconds(failure: int, *, cap_seconds: float, random: Callable[[], float]) -> float:
    """Seconds to wait after the n-th failure (n >= 1): 2**n x 1 s, capped *before* the exponent can overflow, plus 0 to 500 ms.

    `random() -> [0, 1)`. 2, 4, 8, 16, 32 s ... up to `cap_seconds`.
    """
    n = max(1, failure)
    wait = cap_seconds if n >= math.log2(max(cap_seconds / BASE_SECONDS, 1)) else BASE_SECONDS * 2.0**n
    return min(wait, cap_seconds) + JITTER_SECONDS * random()


def wait_before_retry(
    failures_before: int, *, max_retries: int, asked_seconds: float | None, cap_seconds: float, random: Callable[[], float]
) -> float | None:
    """What becomes of one more failure: seconds until the next run, or None when the retries are used up (a dead letter)."""
    failure = failures_before + 1
    if failure > max_retries:
        return None
    if asked_seconds is not None and math.isfinite(asked_seconds) and asked_seconds >= 0:
        return min(asked_seconds, 366 * 86_400.0)
    return backoff_seconds(failure, cap_seconds=cap_seconds, random=random)


def infrastructure_wait_seconds(errors_before: int, *, budget: int, random: Callable[[], float]) -> float | None:
    """Wait after an error that is not the task's fault (deadlock, lost connection), or None when that budget is used up."""
    if errors_before + 1 > budget:
        return None
    return min(0.1 * 2.0 ** min(errors_before, 8), 10.0) * (0.5 + random())
