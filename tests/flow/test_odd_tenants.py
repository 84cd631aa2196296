"""I01: tenant ids full of characters that mean something to Redis, SQL, shells or people, through the whole life of a job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_tenant_queue import enqueue, exceptions, tenant_context
from django_tenant_queue.brokers.base import Broker
from django_tenant_queue.models import DeadLetter, Job
from tests.schedules import opened

from . import tasks
from .inline import InlineWorker, written

pytestmark = pytest.mark.django_db(transaction=True)

ODD = [
    "a:b", "{x}", "}", "?", "[", "a b", "a\nb", "a\tb", "None", "..", "%00", "' OR 1=1--", '"; DROP TABLE x', "😀", "\u202eabc",
    "é", "e\u0301",
    "a*", "**", "0", "-1", "\\", "$1", "%s", "{}", "\x01", "A", "a", "x" * 128, "字" * 128,
]  # fmt: skip
REFUSED = ["", " a", "a ", "\n", "*", "a\0b", "x" * 129, "x" * 10_000, "\ud800", True, 1.0, b"a", None, ["a"]]


def test_every_odd_id_is_a_tenant_of_its_own(notes: None, broker: Broker) -> None:
    """I01: enqueue, run and dead letter; each sees its own tenant and no two share a lane."""
    opened(broker)
    jobs = {}
    for tenant in ODD:
        with tenant_context(tenant):
            jobs[tenant] = (enqueue(tasks.writes, {"text": "x"}), enqueue(tasks.fails_at_once, {}))
    assert {key for _, key in broker.state().lanes} == set(ODD)
    InlineWorker(broker).work_off()
    for tenant, (good, bad) in jobs.items():
        assert json.loads(Job.objects.get(pk=good.pk).result) == [tenant, tenant]
        assert DeadLetter.objects.get(job=bad).tenant_id == tenant
    assert len(written()) == len(ODD)
    assert not broker.state().leases


@pytest.mark.parametrize("tenant", REFUSED, ids=[repr(value)[:20] for value in REFUSED])
def test_what_cannot_be_a_tenant_is_refused_with_a_sentence(notes: None, memory_broker: Broker, tenant: Any) -> None:
    """I01, I02: one rule at the door, and nothing is written."""
    with pytest.raises(exceptions.MissingTenant if tenant is None else exceptions.InvalidTenant):
        enqueue(tasks.writes, {"text": "x"}, tenant_id=tenant)
    assert not Job.objects.exists()
