"""Uploaded order files, the orders read from them, and reports about them."""

from __future__ import annotations

from uuid import uuid4

from django.conf import settings
from django.db import models

from .tenant import TenantRow


def upload_path(upload: OrderUpload, _filename: str) -> str:
    """A name of our own: two uploads never meet, and nothing of the sender's file name reaches the disk."""
    return f"uploads/{upload.tenant_id}/{uuid4().hex}.csv"


class OrderUpload(TenantRow):
    """A CSV file of orders and how far its import came."""

    class Status(models.TextChoices):
        WAITING = "waiting"
        IMPORTING = "importing", "read, orders are being written"
        REFUSED = "refused"

    file = models.FileField(upload_to=upload_path)
    name = models.CharField("file name", max_length=255)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.WAITING)
    problem = models.CharField(max_length=500, blank=True)  # why the whole file was refused
    good_rows = models.PositiveIntegerField(default=0)
    bad_rows = models.PositiveIntegerField(default=0)
    parts = models.PositiveIntegerField(default=0)  # jobs that write the good rows
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True)
    job_id = models.UUIDField(null=True)  # the job that read the file

    class Meta:
        indexes = [models.Index("tenant_id", models.F("created_at").desc(), name="shop_upload_recent")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_read(self) -> bool:
        return self.status != self.Status.WAITING


class RejectedRow(TenantRow):
    """A row of an upload that could not become an order. `line` is where it begins in the file."""

    upload = models.ForeignKey(OrderUpload, on_delete=models.CASCADE, related_name="rejected", db_index=False)
    line = models.PositiveIntegerField()
    reason = models.CharField(max_length=300)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "upload", "line"], name="shop_rejected_once")]

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Order(TenantRow):
    """One order. `job_id` and `fence` name the run that wrote it, so that what ran can be checked from what was written."""

    upload = models.ForeignKey(OrderUpload, on_delete=models.CASCADE, related_name="orders", db_index=False)
    line = models.PositiveIntegerField()
    number = models.CharField("order number", max_length=64)
    customer_email = models.CharField(max_length=254)
    placed_on = models.DateField()
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    currency = models.CharField(max_length=3)
    job_id = models.UUIDField()
    fence = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "upload", "line"], name="shop_order_once")]
        indexes = [models.Index(fields=["tenant_id", "placed_on"], name="shop_order_by_day")]

    def __str__(self) -> str:
        return self.number


class MonthlyReport(TenantRow):
    """A workspace's orders of one month, as they were when the report was made."""

    year = models.PositiveSmallIntegerField()
    month = models.PositiveSmallIntegerField()
    orders = models.PositiveIntegerField()
    customers = models.PositiveIntegerField()
    totals = models.JSONField()  # currency -> amount as text, "12.50"
    made_at = models.DateTimeField(auto_now_add=True)
    job_id = models.UUIDField()
    fence = models.BigIntegerField()

    class Meta:
        indexes = [models.Index("tenant_id", models.F("made_at").desc(), name="shop_report_recent")]

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02}"
