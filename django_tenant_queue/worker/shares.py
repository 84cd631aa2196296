"""Which queues a worker process may claim from, and how much: pure arithmetic over its slots."""

from __future__ import annotations

from collections.abc import Mapping

from ..brokers.base import QueueShare


def slots_of_share(max_share: float, threads: int) -> int:
    """How many of a process's slots a queue may hold at most: rounded down, at least one."""
    return max(1, min(threads, int(max_share * threads + 1e-9)))


def free_shares(max_shares: Mapping[str, float], running: Mapping[str, int], *, free: int, threads: int) -> tuple[QueueShare, ...]:
    """What may be claimed now, in the order of `max_shares` (strict order). A queue at its share is left out."""
    shares = []
    for queue, max_share in max_shares.items():
        limit = min(free, slots_of_share(max_share, threads) - running.get(queue, 0))
        if limit > 0:
            shares.append(QueueShare(queue, limit))
    return tuple(shares)
