"""From an uploaded file to the jobs that write its orders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connections, router

from django_tenant_queue.envelope import RunningJob

from .csv_orders import BadRow, OrderRow
from .models import Order, OrderUpload, RejectedRow

ROWS_PER_JOB = 10
JOBS_PER_BATCH = 500
REJECTED_PER_BATCH = 1000

PackedRow = list[Any]
Rows = Iterable[OrderRow]


@dataclass
class Counts:
    """What a file held."""

    good: int = 0
    bad: int = 0


def pack(row: OrderRow) -> PackedRow:
    """An order as it travels in a payload."""
    return [row.line, row.order_number, row.customer_email, row.placed_on.isoformat(), str(row.amount), row.currency]


# The rows stay JSON from the payload to the table: a fifth of what making ten objects and their INSERT costs.
_WRITE = f"""
    INSERT INTO {Order._meta.db_table}
        (tenant_id, upload_id, job_id, fence, line, number, customer_email, placed_on, amount, currency)
    SELECT %s, %s, %s, %s, (r->>0)::int, r->>1, r->>2, (r->>3)::date, (r->>4)::numeric, r->>5 FROM json_array_elements(%s::json) AS r"""


def write_orders(rows: list[PackedRow], upload_id: int, job: RunningJob) -> int:
    """Write packed rows as orders of this run's. -> how many."""
    with connections[router.db_for_write(Order)].cursor() as cursor:
        cursor.execute(_WRITE, [job.tenant_id, upload_id, job.id, job.fence, json.dumps(rows)])
        return int(cursor.rowcount)


def keep_rejected(rows: Iterable[OrderRow | BadRow], upload: OrderUpload, counts: Counts) -> Iterator[OrderRow]:
    """Pass the good rows on; write the bad ones down in batches. Counts both."""
    rejected: list[RejectedRow] = []
    for row in rows:
        if isinstance(row, OrderRow):
            counts.good += 1
            yield row
            continue
        counts.bad += 1
        rejected.append(RejectedRow(tenant_id=upload.tenant_id, upload=upload, line=row.line, reason=row.reason[:300]))
        if len(rejected) == REJECTED_PER_BATCH:
            RejectedRow.objects.bulk_create(rejected)
            rejected.clear()
    RejectedRow.objects.bulk_create(rejected)


def parts_of(rows: Iterable[OrderRow]) -> Iterator[list[PackedRow]]:
    """The rows as payloads of ROWS_PER_JOB."""
    packed = (pack(row) for row in rows)
    while part := list(islice(packed, ROWS_PER_JOB)):
        yield part
