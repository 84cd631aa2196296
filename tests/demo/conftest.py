"""A finished run of the story, small, worked off on the test's own thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from django_tenant_queue.brokers.memory import MemoryBroker
from sampleproject.demo import checks, world
from sampleproject.demo.checks import Expected, Finding
from sampleproject.demo.load import Asked, Load, upload
from sampleproject.demo.receiver import Receiver
from sampleproject.demo.run import mailed_jobs
from sampleproject.demo.scenario import Scenario
from sampleproject.demo.world import World
from sampleproject.shop.sample_orders import sample_rows, write_orders
from tests.workers import StepWorker

SMALL = Scenario(rows=45, quiet_workspaces=4, resets_each=2, reports_each=1, webhooks_each=1, broken_logos=0, crashing_logos=0, seconds=1)
BAD_EVERY = 15


@dataclass(frozen=True)
class Finished:
    """A run that has come to its end. `expected()`: what it must have come to, from those who asked."""

    shop: World
    asked: list[Asked]
    upload_id: int
    received: list[tuple[str, str]]

    def expected(self) -> Expected:
        rows = sample_rows(SMALL.rows, bad_every=BAD_EVERY)
        return Expected(self.shop.tenants, self.asked, self.shop.noisy.workspace_id, self.upload_id, rows, mailed_jobs(), self.received)

    def found(self) -> list[Finding]:
        return checks.check(connection, self.expected())

    def totals(self) -> dict[str, int]:
        return checks.totals(self.found())


@pytest.fixture
def finished(transactional_db: None, memory_broker: MemoryBroker, conf: Any, settings: Any, tmp_path: Path, monkeypatch: Any) -> Finished:
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH, settings.MEDIA_ROOT = tmp_path / "mail", tmp_path / "media"
    memory_broker.begin_rebuild("first", replaces=None)
    memory_broker.open_epoch("first")
    file = tmp_path / "orders.csv"
    with file.open("wb") as opened:
        write_orders(opened, SMALL.rows, bad_every=BAD_EVERY)
    with Receiver() as receiver:
        shop = world.build(SMALL, "test", receiver.url)
        load = Load(SMALL.asks(), shop)
        for ask in SMALL.asks():
            load.send(ask)
        upload_id, asked = upload(shop, file)
        StepWorker(memory_broker, conf).work_until_quiet()
        return Finished(shop, [*load.asked, asked], upload_id, receiver.taken)


@pytest.fixture
def execute(finished: Finished) -> Callable[..., int]:
    """SQL under the application's plain role, as this workspace (default: the noisy one). -> rows changed."""

    def run(sql: str, *, tenant: str = "") -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('app.current_tenant_id', %s, false)", [tenant or finished.shop.noisy.workspace_id])
            try:
                cursor.execute(sql)
                return int(cursor.rowcount)
            finally:
                cursor.execute("RESET app.current_tenant_id")

    return run
