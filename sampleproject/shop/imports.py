"""From an uploaded file to the jobs that write its orders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any

from .csv_orders import BadRow, OrderRow
from .models import OrderUpload, RejectedRow

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


def unpack(packed: PackedRow) -> dict[str, Any]:
    """Fields of an Order."""
    line, number, email, placed_on, amount, currency = packed
    return {
        "line": line,
        "number": number,
        "customer_email": email,
        "placed_on": date.fromisoformat(placed_on),
        "amount": Decimal(amount),
        "currency": currency,
    }


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
