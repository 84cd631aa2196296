"""The shop's tasks."""

from __future__ import annotations

from datetime import date
from itertools import islice
from typing import BinaryIO, cast

from django.db import transaction
from django.db.models import Count, Sum
from django.utils import timezone

from django_tenant_queue import Cancel, current_job, enqueue, enqueue_many, task, tenant_transaction

from . import imports, mails, webhooks
from .csv_orders import UnreadableCsv, read_orders
from .effects import record_effect
from .logos import png_size
from .models import MonthlyReport, Order, OrderUpload, PasswordReset, WebhookDelivery, WebhookEndpoint
from .poison import decode_logo_natively
from .queues import BULK, DEFAULT, INTERACTIVE


@task(queue=BULK, cost=10, timeout=900)
def import_orders(upload_id: int) -> dict[str, int]:
    """Read an uploaded file and enqueue the writing of its orders, ten rows a job. One transaction: all of a file or nothing."""
    record_effect("file")
    upload = OrderUpload.objects.select_for_update().filter(pk=upload_id).first()
    if upload is None or upload.is_read:
        raise Cancel(f"upload {upload_id} is {'read already' if upload else 'gone'}")
    counts = imports.Counts()
    try:
        # A savepoint: a file that turns out to be unreadable half-way leaves neither jobs nor rejected rows.
        with transaction.atomic(), upload.file.open("rb") as file:
            upload.parts = _fan_out(upload, imports.keep_rejected(read_orders(cast("BinaryIO", file)), upload, counts))
    except UnreadableCsv as error:
        counts = imports.Counts()
        upload.parts, upload.problem = 0, str(error)[:500]
    upload.status = OrderUpload.Status.REFUSED if upload.problem else OrderUpload.Status.IMPORTING
    upload.good_rows, upload.bad_rows, upload.read_at, upload.job_id = counts.good, counts.bad, timezone.now(), current_job().id
    upload.save()
    return {"good_rows": counts.good, "bad_rows": counts.bad, "jobs": upload.parts}


def _fan_out(upload: OrderUpload, rows: imports.Rows) -> int:
    calls = ((import_order_rows, {"upload_id": upload.pk, "rows": part}) for part in imports.parts_of(rows))
    jobs = 0
    while batch := list(islice(calls, imports.JOBS_PER_BATCH)):
        jobs += len(enqueue_many(batch))
    return jobs


@task(queue=BULK)
def import_order_rows(upload_id: int, rows: list[imports.PackedRow]) -> int:
    """Write orders. Exactly once: they are committed together with the job's settle. The unique constraint is a second lock."""
    record_effect("rows")
    return imports.write_orders(rows, upload_id, current_job())


@task(queue=INTERACTIVE, timeout=60)
def send_password_reset(reset_id: int) -> None:
    """Mail the link of a reset. The token is made here, so that it is in no payload; a second run of the job sends the same link."""
    record_effect("mail")
    job = current_job()
    reset = PasswordReset.objects.select_related("user").filter(pk=reset_id).first()
    if reset is None or reset.used_at:
        raise Cancel(f"reset {reset_id} is {'used' if reset else 'gone'}")
    token = mails.reset_token(reset, job.id)
    reset.token_hash, reset.sent_at, reset.job_id, reset.fence = mails.digest_of(token), timezone.now(), job.id, job.fence
    reset.save(update_fields=["token_hash", "sent_at", "job_id", "fence"])
    mails.reset_message(reset, token).send()


@task(queue=DEFAULT, cost=2)
def generate_monthly_report(year: int, month: int) -> int:
    """Sum the tenant's orders of a month into a new report, and tell the workspace's webhooks. Returns the report's id."""
    record_effect("report")
    job = current_job()
    first, after = date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)
    orders = Order.objects.filter(tenant_id=job.tenant_id, placed_on__gte=first, placed_on__lt=after)
    whole = orders.aggregate(orders=Count("pk"), customers=Count("customer_email", distinct=True))
    totals = {row["currency"]: str(row["total"]) for row in orders.values("currency").annotate(total=Sum("amount")).order_by("currency")}
    report = MonthlyReport.objects.create(
        tenant_id=job.tenant_id or "", year=year, month=month, totals=totals, job_id=job.id, fence=job.fence, **whole
    )
    tell_webhooks(report.tenant_id, "report.made", {"year": year, "month": month, "totals": totals, **whole})
    return report.pk


def tell_webhooks(tenant_id: str, event: str, body: dict[str, object]) -> None:
    """Record and enqueue one delivery for each active endpoint, in the caller's transaction."""
    for endpoint in WebhookEndpoint.objects.filter(tenant_id=tenant_id, active=True):
        delivery = WebhookDelivery.objects.create(tenant_id=tenant_id, endpoint=endpoint, event=event, body=body)
        enqueue(deliver_webhook, {"delivery_id": delivery.pk})


@task(queue=DEFAULT, atomic=False, timeout=60)
def deliver_webhook(delivery_id: int) -> int:
    """POST an event to its receiver; returns the HTTP status. At least once: no transaction is open while the receiver answers.

    Urgent ones are enqueued with queue=INTERACTIVE.
    """
    with tenant_transaction():
        delivery = WebhookDelivery.objects.select_related("endpoint").filter(pk=delivery_id).first()
        if delivery is None:
            raise Cancel(f"delivery {delivery_id} is gone")
        if delivery.delivered_at:  # an earlier run delivered it and died before it could say so
            return delivery.answer or 0
    answer = webhooks.post(delivery, current_job())
    with tenant_transaction():
        webhooks.write_down(delivery, answer, current_job())
    return webhooks.status_or_raise(answer)


@task(queue=DEFAULT, max_retries=1, timeout=30)
def measure_logo(image_hex: str) -> list[int]:
    """Width and height of a workspace's new logo, a PNG file as hexadecimal text. Fails for a broken one, every time."""
    record_effect("logo")
    return list(png_size(bytes.fromhex(image_hex)))


__all__ = [
    "decode_logo_natively",
    "deliver_webhook",
    "generate_monthly_report",
    "import_order_rows",
    "import_orders",
    "measure_logo",
    "send_password_reset",
]
