"""How long a loop waits before it asks a silent store again."""

from __future__ import annotations

import random
from collections.abc import Callable

_LARGEST_EXPONENT = 30  # capped before the power is taken: attempt 10,000 must not compute 2**10,000


def backoff_seconds(
    attempt: int, *, base_seconds: float = 0.05, cap_seconds: float = 5.0, draw: Callable[[], float] = random.random
) -> float:
    """Seconds to wait after failure number `attempt` (from 0): base x 2**attempt, capped, of which the upper half is random.

    The random half keeps a fleet that lost its store at one moment from coming back at one moment. `draw` gives a float in [0, 1).
    """
    full = min(cap_seconds, base_seconds * 2 ** min(max(attempt, 0), _LARGEST_EXPONENT))
    return full / 2 + full / 2 * draw()
