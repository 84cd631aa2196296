"""Requests to set a new password."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from .tenant import TenantRow


def digest_of(token: str) -> str:
    """What is stored of a token. Tokens are long and random, so one round of SHA-256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


class PasswordReset(TenantRow):
    """One request. Its token is known only to the message that was sent: here is its hash."""

    VALID_FOR = timedelta(hours=1)

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    token_hash = models.CharField(max_length=64, blank=True, db_index=True)
    requested_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    job_id = models.UUIDField(null=True)
    fence = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"reset {self.pk}"

    @property
    def is_open(self) -> bool:
        """Whether its link may still be used."""
        return self.sent_at is not None and self.used_at is None and timezone.now() < self.sent_at + self.VALID_FOR
