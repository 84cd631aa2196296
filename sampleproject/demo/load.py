"""Sends the requests of the script at their times, and writes down when each was committed.

A request's wait begins at its commit: the first on-commit callback takes the time, before the publish that follows it. So the time is
read right after COMMIT has returned, on this machine's clock, which the workers' (and the private servers') clock is too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Lock, Thread
from uuid import uuid4

from django.db import connections, transaction
from django.test import Client
from django.utils import timezone

from django_tenant_queue import enqueue, tenant_context, tenant_transaction
from django_tenant_queue.context import current_origin
from sampleproject.shop.models import WebhookDelivery
from sampleproject.shop.tasks import (
    decode_logo_natively,
    deliver_webhook,
    generate_monthly_report,
    import_orders,
    measure_logo,
    send_password_reset,
)
from sampleproject.shop.views.resets import request_reset

from .events import RunFailed
from .scenario import Ask, Kind
from .world import World

THREADS = 4  # so that one slow commit does not hold up the requests after it
BROKEN_LOGO = b"\x89PNG\r\n\x1a\n of which the rest is missing".hex()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was committed. Its job, and the jobs that one enqueues, carry the correlation id. `timed`: its wait counts."""

    correlation_id: str
    tenant_id: str
    task: str
    committed_at: datetime
    timed: bool = True


class Load:
    """`asked`: what was sent so far. `late_seconds`: how far each request was behind its time, because this machine was too busy."""

    def __init__(self, asks: Sequence[Ask], world: World) -> None:
        self.asked: list[Asked] = []
        self.late_seconds: list[float] = []
        self.errors: list[Exception] = []
        self._world, self._asks = world, iter(asks)
        self._lock, self._stop = Lock(), Event()
        self._threads = [Thread(target=self._send_all, name=f"load-{i}", daemon=True) for i in range(THREADS)]

    def start(self) -> None:
        """The script's time 0 is now."""
        self._begin = time.monotonic()
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(5)

    def send(self, ask: Ask, *, timed: bool = True) -> None:
        """Send one request now: what the shop's page does, in the workspace's context."""
        workspace_id = self._world.quiet[ask.workspace]
        action, task = _ACTIONS[ask.kind]
        with tenant_context(workspace_id):
            origin = current_origin()
            assert origin is not None
            with tenant_transaction():
                transaction.on_commit(lambda: self._committed(origin.correlation_id, workspace_id, task, timed))
                action(self._world, workspace_id, ask)

    def _send_all(self) -> None:
        try:
            for ask in self._each():
                wait = self._begin + ask.at_seconds - time.monotonic()
                if self._stop.wait(max(0.0, wait)):
                    return
                self.late_seconds.append(time.monotonic() - self._begin - ask.at_seconds)
                self.send(ask)
        except Exception as error:
            self.errors.append(error)
        finally:
            connections.close_all()

    def _each(self) -> Iterator[Ask]:
        while True:
            with self._lock:
                ask = next(self._asks, None)
            if ask is None:
                return
            yield ask

    def _committed(self, correlation_id: str, tenant_id: str, task: str, timed: bool) -> None:
        self.asked.append(Asked(correlation_id, tenant_id, task, timezone.now(), timed))


def upload(world: World, path: Path) -> tuple[int, Asked]:
    """Send the file to the upload page, as its owner's browser would. -> (upload id, what was asked). Raises RunFailed."""
    workspace_id, client, correlation_id = world.noisy.workspace_id, Client(), uuid4().hex
    client.force_login(world.noisy.user)
    with path.open("rb") as file:
        answer = client.post(f"/w/{workspace_id}/uploads/new/", {"file": file}, headers={"X-Request-ID": correlation_id})
    committed_at = timezone.now()
    if answer.status_code != 302:
        raise RunFailed(f"The upload page answered {answer.status_code} instead of taking the file.")
    upload_id = int(answer["Location"].rstrip("/").rsplit("/", 1)[1])
    return upload_id, Asked(correlation_id, workspace_id, import_orders.name, committed_at)


def _ask_reset(world: World, workspace_id: str, ask: Ask) -> None:
    people = world.people[workspace_id]
    request_reset(people[ask.number % len(people)])


def _order_report(world: World, workspace_id: str, ask: Ask) -> None:
    enqueue(generate_monthly_report, {"year": 2024, "month": 1 + ask.number % 12})


def _send_webhook(world: World, workspace_id: str, ask: Ask) -> None:
    delivery = WebhookDelivery.objects.create(
        tenant_id=workspace_id, endpoint_id=world.endpoints[workspace_id], event="stock.low", body={"product": f"P-{ask.number}"}
    )
    enqueue(deliver_webhook, {"delivery_id": delivery.pk})


def _measure_broken_logo(world: World, workspace_id: str, ask: Ask) -> None:
    enqueue(measure_logo, {"image_hex": BROKEN_LOGO})


def _decode_crashing_logo(world: World, workspace_id: str, ask: Ask) -> None:
    enqueue(decode_logo_natively, {"image_hex": BROKEN_LOGO})


_ACTIONS: dict[Kind, tuple[Callable[[World, str, Ask], None], str]] = {
    Kind.RESET: (_ask_reset, send_password_reset.name),
    Kind.REPORT: (_order_report, generate_monthly_report.name),
    Kind.WEBHOOK: (_send_webhook, deliver_webhook.name),
    Kind.BROKEN_LOGO: (_measure_broken_logo, measure_logo.name),
    Kind.CRASHING_LOGO: (_decode_crashing_logo, decode_logo_natively.name),
}
