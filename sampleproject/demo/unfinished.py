"""What is still to be done, asked of the ledger."""

from __future__ import annotations

from typing import Any

from django.db import connection

from sampleproject.shop.tasks import import_order_rows, import_orders, send_password_reset

Unfinished = dict[str, tuple[int, float]]

# Two statements in one, so that each can use its partial index: runnable or running, and waiting for its time.
_SQL = """
SELECT task, count(*), extract(epoch FROM now() - min(enqueued_at))::float8 FROM (
    SELECT task, enqueued_at FROM tenant_queue_job WHERE finished_at IS NULL AND xid IS NOT NULL
    UNION ALL SELECT task, enqueued_at FROM tenant_queue_job WHERE finished_at IS NULL AND xid IS NULL
) unfinished GROUP BY task
"""


def unfinished() -> Unfinished:
    """Task -> (jobs that have not come to an end, seconds since the oldest was asked for)."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL)
        return {task: (count, age) for task, count, age in cursor.fetchall()}


def progress(left: Unfinished, asked: int) -> dict[str, Any]:
    """What a person wants to see while it runs."""
    resets, oldest_seconds = left.get(send_password_reset.name, (0, 0.0))
    return {
        "asked": asked,
        "reading": import_orders.name in left,
        "import_left": left.get(import_order_rows.name, (0, 0.0))[0],
        "left": sum(count for count, _ in left.values()),
        "resets_waiting": resets,
        "oldest_reset_seconds": round(oldest_seconds, 1),
    }
