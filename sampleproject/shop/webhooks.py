"""Sends a webhook and decides what its answer means."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
from dataclasses import dataclass
from functools import cache

import httpx
from django.db.models import F
from django.utils import timezone

from django_tenant_queue import Cancel, Retry
from django_tenant_queue.envelope import RunningJob

from .effects import record_effect
from .models import WebhookDelivery

TIMEOUT_SECONDS = 10
LONGEST_WAIT_SECONDS = 3600


class DeliveryFailed(Exception):
    """The receiver did not take the event this time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: an HTTP status, or None and why there is none."""

    status: int | None
    problem: str = ""
    retry_after_seconds: float | None = None

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def final(self) -> bool:
        """Whether asking again cannot help: the receiver says the request itself is wrong."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 425, 429)


def post(delivery: WebhookDelivery, job: RunningJob) -> Answer:
    """POST the event. The receiver tells a repeat by Idempotency-Key, and a late run by the smaller X-Shop-Fence. Follows no redirect."""
    content = json.dumps({"event": delivery.event, "workspace": delivery.tenant_id, "data": delivery.body}).encode()
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": str(job.id),
        "X-Shop-Fence": str(job.fence),
        "X-Shop-Signature": "sha256=" + hmac.new(delivery.endpoint.secret.encode(), content, hashlib.sha256).hexdigest(),
    }
    try:
        response = httpx.post(delivery.endpoint.url, content=content, headers=headers, timeout=TIMEOUT_SECONDS, verify=_tls())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(None, f"{type(error).__name__}: {error}"[:300])
    problem = "" if response.is_success else f"The receiver answered {response.status_code} {response.reason_phrase}"
    return Answer(response.status_code, problem[:300], _seconds(response.headers.get("Retry-After", "")))


@cache
def _tls() -> ssl.SSLContext:
    """Made once: it costs more than a delivery. Nothing else is shared, so no cookie goes from one workspace's receiver to another's."""
    return httpx.create_ssl_context()


def _seconds(text: str) -> float | None:
    return min(float(text), LONGEST_WAIT_SECONDS) if text.isascii() and text.isdigit() else None


def write_down(delivery: WebhookDelivery, answer: Answer, job: RunningJob) -> None:
    """Record an attempt, and the effect if this run is the first that delivered. Call inside tenant_transaction()."""
    open_delivery = WebhookDelivery.objects.filter(pk=delivery.pk, delivered_at=None)
    delivered_at = timezone.now() if answer.taken else None
    first = open_delivery.update(
        attempts=F("attempts") + 1, answer=answer.status, problem=answer.problem, delivered_at=delivered_at, job_id=job.id, fence=job.fence
    )
    if first and answer.taken:
        record_effect("webhook")


def status_or_raise(answer: Answer) -> int:
    """The status of a delivery that was taken. Raises Cancel, Retry or DeliveryFailed otherwise."""
    if answer.taken and answer.status is not None:
        return answer.status
    if answer.final:
        raise Cancel(f"{answer.problem}; it would do so again")
    if answer.retry_after_seconds is not None:
        raise Retry(after=answer.retry_after_seconds, reason=answer.problem)
    raise DeliveryFailed(answer.problem)
