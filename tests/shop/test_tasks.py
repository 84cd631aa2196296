"""What the shop's tasks write, run as jobs in their tenant's transaction."""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from datetime import date
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from django_tenant_queue import Cancel, Retry
from django_tenant_queue.exceptions import OutsideJob
from django_tenant_queue.models import Job
from sampleproject.shop import tasks
from sampleproject.shop.effects import record_effect
from sampleproject.shop.logos import BrokenImage
from sampleproject.shop.models import JobEffect, MonthlyReport, Order, OrderUpload, PasswordReset, RejectedRow, WebhookDelivery
from sampleproject.shop.models.resets import digest_of
from sampleproject.shop.sample_orders import write_orders
from sampleproject.shop.webhooks import DeliveryFailed

from .conftest import JobRun, Receiver, tenant
from .factories import DeliveryFactory, EndpointFactory, OrderFactory, ResetFactory, UploadFactory

pytestmark = pytest.mark.django_db


def upload_of(content: str | bytes, **values: Any) -> OrderUpload:
    with tenant("acme"):
        return UploadFactory(content=content, **values)


def jobs_of(task: Any) -> list[Job]:
    return list(Job.objects.filter(task=task.name).order_by("pk"))


# -- effects


def test_effect_holds_what_the_job_says_and_what_the_database_saw(as_job: JobRun) -> None:
    with as_job("acme", fence=3) as job:
        record_effect("test")
    rows = list(JobEffect.objects.values_list("job_id", "fence", "tenant_id", "tenant_seen", "kind"))
    assert rows == [(job.id, 3, "acme", "acme", "test")]


def test_effect_shows_a_wrong_tenant(as_job: JobRun) -> None:
    with tenant("umbra"), as_job("acme", atomic=False):
        record_effect()
    assert list(JobEffect.objects.values_list("tenant_id", "tenant_seen")) == [("acme", "umbra")]


def test_effect_needs_a_job() -> None:
    with pytest.raises(OutsideJob):
        record_effect()


# -- imports


def test_file_becomes_jobs_of_ten_rows_and_reported_lines(as_job: JobRun) -> None:
    file = BytesIO()
    written = write_orders(file, 95, bad_every=20)
    upload = upload_of(file.getvalue())
    with as_job("acme"):
        result = tasks.import_orders(upload.pk)
        upload.refresh_from_db()
        rejected = RejectedRow.objects.filter(upload=upload).count()
    assert result == {"good_rows": written.good_rows, "bad_rows": written.bad_rows, "jobs": 10}
    assert (upload.status, upload.good_rows, upload.bad_rows, upload.parts, rejected) == ("importing", 91, 4, 10, 4)
    parts = jobs_of(tasks.import_order_rows)
    assert [len(json.loads(job.payload)["rows"]) for job in parts] == [10] * 9 + [1]
    assert {(job.tenant_id, job.actor_id, job.queue) for job in parts} == {("acme", "7", "bulk")}


def test_parts_write_exactly_the_good_rows(as_job: JobRun) -> None:
    file = BytesIO()
    written = write_orders(file, 120, bad_every=7)
    upload = upload_of(file.getvalue())
    with as_job("acme"):
        tasks.import_orders(upload.pk)
    for part in jobs_of(tasks.import_order_rows):
        with as_job("acme", job_id=part.id):
            tasks.import_order_rows(**json.loads(part.payload))
    with tenant("acme"):
        orders = list(Order.objects.filter(upload=upload))
        bad_lines = set(RejectedRow.objects.values_list("line", flat=True))
    assert len(orders) == written.good_rows
    assert len({order.line for order in orders} | bad_lines) == 120
    assert {order.job_id for order in orders} == {part.id for part in jobs_of(tasks.import_order_rows)}


def test_row_arrives_as_it_was_in_the_file(as_job: JobRun) -> None:
    upload = upload_of("order_number,customer_email,placed_on,amount,currency\nÅ-1,ada@example.com,2024-02-29,9999999999.99,eur\n")
    with as_job("acme"):
        tasks.import_orders(upload.pk)
        tasks.import_order_rows(**json.loads(jobs_of(tasks.import_order_rows)[0].payload))
        order = Order.objects.get()
    assert (order.number, order.placed_on, order.amount, order.currency) == ("Å-1", date(2024, 2, 29), Decimal("9999999999.99"), "EUR")


def test_file_that_is_unreadable_half_way_leaves_no_jobs_and_no_rows(as_job: JobRun) -> None:
    file = BytesIO()
    write_orders(file, 6000, bad_every=5)
    upload = upload_of(file.getvalue() + b"\xff\n")
    with as_job("acme"):
        tasks.import_orders(upload.pk)
        upload.refresh_from_db()
        assert not RejectedRow.objects.exists()
    assert (upload.status, upload.good_rows, upload.parts) == ("refused", 0, 0)
    assert "is not UTF-8 text" in upload.problem
    assert jobs_of(tasks.import_order_rows) == []


def test_upload_is_read_only_once(as_job: JobRun) -> None:
    upload = upload_of(b"")
    with as_job("acme"):
        tasks.import_orders(upload.pk)
        with pytest.raises(Cancel, match="is read already"):
            tasks.import_orders(upload.pk)


def test_upload_of_another_tenant_is_not_there(as_job: JobRun) -> None:
    upload = upload_of(b"")
    with as_job("umbra"), pytest.raises(Cancel, match="is gone"):
        tasks.import_orders(upload.pk)


def test_rows_cannot_be_written_twice(as_job: JobRun) -> None:
    upload = upload_of(b"")
    rows = [[2, "A-1", "ada@example.com", "2024-05-31", "12.50", "EUR"]]
    with as_job("acme"):
        tasks.import_order_rows(upload.pk, rows)
        with pytest.raises(IntegrityError), transaction.atomic():
            tasks.import_order_rows(upload.pk, rows)


# -- password resets


def sent_reset(as_job: JobRun, reset: PasswordReset, **job: Any) -> str:
    with as_job("acme", **job):
        tasks.send_password_reset(reset.pk)
    return mail.outbox[-1].body.split("/password-reset/")[1].split("/")[0]


def test_reset_message_holds_the_token_and_the_database_its_hash(as_job: JobRun) -> None:
    with tenant("acme"):
        reset = ResetFactory()
    token = sent_reset(as_job, reset)
    with tenant("acme"):
        reset.refresh_from_db()
    assert reset.token_hash == digest_of(token)
    assert reset.is_open
    assert mail.outbox[0].to == [reset.user.email]
    assert mail.outbox[0].extra_headers["Message-ID"] == f"<{reset.job_id}@shop.example.com>"


def test_second_run_of_the_job_sends_the_same_link(as_job: JobRun) -> None:
    with tenant("acme"):
        reset = ResetFactory()
    job_id = uuid4()
    assert sent_reset(as_job, reset, job_id=job_id) == sent_reset(as_job, reset, job_id=job_id, fence=2)


def test_reset_that_is_gone_sends_nothing(as_job: JobRun) -> None:
    with as_job("acme"), pytest.raises(Cancel):
        tasks.send_password_reset(4711)
    assert mail.outbox == []


# -- reports


def test_report_sums_its_tenants_month(as_job: JobRun) -> None:
    with tenant("acme"):
        upload = UploadFactory()
        for amount, currency, day in [("10", "EUR", 1), ("2.50", "EUR", 31), ("7", "USD", 31)]:
            OrderFactory(upload=upload, amount=Decimal(amount), currency=currency, placed_on=date(2024, 12, day))
        OrderFactory(upload=upload, placed_on=date(2025, 1, 1))
        OrderFactory(upload=upload, placed_on=date(2024, 11, 30))
    with tenant("umbra"):
        OrderFactory(tenant_id="umbra", placed_on=date(2024, 12, 24))
    with as_job("acme"):
        report = MonthlyReport.objects.get(pk=tasks.generate_monthly_report(2024, 12))
    assert (report.orders, report.customers, report.totals) == (3, 1, {"EUR": "12.50", "USD": "7.00"})


def test_report_tells_the_workspaces_active_webhooks(as_job: JobRun) -> None:
    with tenant("acme"):
        endpoint = EndpointFactory()
        EndpointFactory(active=False)
    with as_job("acme"):
        tasks.generate_monthly_report(2024, 5)
        delivery = WebhookDelivery.objects.get()
    assert (delivery.endpoint_id, delivery.event, delivery.body["orders"]) == (endpoint.pk, "report.made", 0)
    assert [json.loads(job.payload) for job in jobs_of(tasks.deliver_webhook)] == [{"delivery_id": delivery.pk}]


# -- webhooks


@pytest.fixture
def delivery(receiver: Receiver) -> WebhookDelivery:
    with tenant("acme"):
        return DeliveryFactory(endpoint__url=receiver.url)


def deliver(as_job: JobRun, delivery: WebhookDelivery, **job: Any) -> int:
    with as_job("acme", atomic=False, **job):
        return tasks.deliver_webhook(delivery.pk)


def fresh(delivery: WebhookDelivery) -> WebhookDelivery:
    with tenant("acme"):
        delivery.refresh_from_db()
    return delivery


def test_delivery_posts_a_signed_event_with_job_id_and_fence(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    job_id = uuid4()
    assert deliver(as_job, delivery, job_id=job_id, fence=4) == 200
    ((headers, body),) = receiver.got
    assert (headers["idempotency-key"], headers["x-shop-fence"]) == (str(job_id), "4")
    assert headers["x-shop-signature"] == "sha256=" + hmac.new(delivery.endpoint.secret.encode(), body, hashlib.sha256).hexdigest()
    assert json.loads(body) == {"event": "test", "workspace": "acme", "data": {"answer": 42}}
    assert fresh(delivery).delivered_at is not None
    assert JobEffect.objects.filter(job_id=job_id, fence=4, tenant_seen="acme").count() == 1


def test_delivered_event_is_not_sent_again(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    deliver(as_job, delivery)
    assert deliver(as_job, delivery, fence=2) == 200
    assert len(receiver.got) == 1
    assert JobEffect.objects.count() == 1


def test_answer_that_may_change_fails_the_attempt(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    receiver.answers = [(503, {}), (204, {})]
    with pytest.raises(DeliveryFailed, match="503"):
        deliver(as_job, delivery)
    assert fresh(delivery).problem == "The receiver answered 503 Service Unavailable"
    assert deliver(as_job, delivery, fence=2) == 204
    assert (fresh(delivery).attempts, delivery.problem) == (2, "")


def test_receiver_says_when_to_ask_again(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    receiver.answers = [(429, {"Retry-After": "17"})]
    with pytest.raises(Retry) as caught:
        deliver(as_job, delivery)
    assert caught.value.after == 17


def test_answer_that_will_not_change_ends_the_job(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    receiver.answers = [(410, {})]
    with pytest.raises(Cancel, match="410"):
        deliver(as_job, delivery)
    assert fresh(delivery).answer == 410


def test_redirect_is_not_followed(as_job: JobRun, delivery: WebhookDelivery, receiver: Receiver) -> None:
    receiver.answers = [(302, {"Location": receiver.url}), (200, {})]
    with pytest.raises(DeliveryFailed, match="302"):
        deliver(as_job, delivery)
    assert len(receiver.got) == 1


def test_receiver_that_is_not_there_fails_the_attempt(as_job: JobRun, receiver: Receiver) -> None:
    receiver.server.server_close()
    with tenant("acme"):
        delivery = DeliveryFactory(endpoint__url=receiver.url)
    with pytest.raises(DeliveryFailed, match="ConnectError"):
        deliver(as_job, delivery)
    assert fresh(delivery).attempts == 1


# -- logos


def test_logo_is_measured(as_job: JobRun) -> None:
    header = bytes.fromhex("49484452000000030000000408060000 00")
    image = bytes.fromhex("89504e470d0a1a0a0000000d") + header + zlib.crc32(header).to_bytes(4, "big")
    with as_job("acme"):
        assert tasks.measure_logo(image.hex()) == [3, 4]


@pytest.mark.parametrize("image", ["", "00", "89504e470d0a1a0a00", "89504e470d0a1a0a" + "00" * 40])
def test_broken_logo_always_fails(as_job: JobRun, image: str) -> None:
    with as_job("acme"), pytest.raises(BrokenImage):
        tasks.measure_logo(image)
