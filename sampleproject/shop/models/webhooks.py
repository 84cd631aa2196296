"""Where a workspace wants to be told of events, and each telling."""

from __future__ import annotations

import secrets

from django.core.validators import URLValidator
from django.db import models

from .tenant import TenantRow


def new_secret() -> str:
    return secrets.token_hex(24)


class WebhookEndpoint(TenantRow):
    """A receiver of the workspace's. `secret` signs what is sent to it."""

    url = models.CharField(max_length=500, validators=[URLValidator(schemes=["http", "https"])])
    secret = models.CharField(max_length=64, default=new_secret)
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(TenantRow):
    """One event for one receiver. Delivered at least once; the receiver tells repeats by the Idempotency-Key header."""

    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=60)
    body = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)
    attempts = models.PositiveIntegerField(default=0)
    answer = models.PositiveSmallIntegerField(null=True)  # the last HTTP status
    problem = models.CharField(max_length=300, blank=True)  # why the last attempt failed
    delivered_at = models.DateTimeField(null=True)
    job_id = models.UUIDField(null=True)
    fence = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.event} to {self.endpoint_id}"
