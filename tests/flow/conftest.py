"""A worker in this process, and a table its tasks write to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from django_tenant_queue.brokers.memory import MemoryBroker

from . import tasks
from .inline import InlineWorker


@pytest.fixture
def notes() -> Iterator[None]:
    """A table the tasks write to; the plain role owns it."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE flow_note (text text)")
    tasks.seen.clear()
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE flow_note")


@pytest.fixture
def worker(notes: None, memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> InlineWorker:
    monkeypatch.setattr("django_tenant_queue.enqueueing.get_broker", lambda: memory_broker)
    memory_broker.begin_rebuild("first", replaces=None)
    memory_broker.open_epoch("first")
    return InlineWorker(memory_broker)
