"""The checks find nothing when all is well, and say so when one row is not as it should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from sampleproject.demo import measure, report
from sampleproject.shop.tasks import import_orders
from tests.demo.conftest import Finished

WELL = {"lost": 0, "duplicated": 0, "wrong_tenant": 0}
ONE_EFFECT = "(SELECT min(id) FROM shop_jobeffect WHERE kind = 'rows')"
Execute = Callable[..., int]


def test_a_run_in_which_all_went_well_has_no_findings(finished: Finished) -> None:
    assert finished.found() == []
    assert len(finished.received) == 4 + 3, "each workspace asks for a webhook, the first three are told of their report"


def test_a_deleted_effect_is_lost(finished: Finished, execute: Execute) -> None:
    assert execute(f"DELETE FROM shop_jobeffect WHERE id = {ONE_EFFECT}") == 1
    assert finished.totals() == WELL | {"lost": 1}


def test_a_doubled_effect_is_duplicated(finished: Finished, execute: Execute) -> None:
    columns = "job_id, fence, tenant_id, tenant_seen, task, kind, began_at"
    assert execute(f"INSERT INTO shop_jobeffect ({columns}) SELECT {columns} FROM shop_jobeffect WHERE id = {ONE_EFFECT}") == 1
    assert finished.totals() == WELL | {"duplicated": 1}


@pytest.mark.parametrize("column", ["tenant_id", "tenant_seen"])
@pytest.mark.parametrize("label", ["somebody-else", ""])
def test_a_mislabelled_effect_is_of_a_wrong_tenant(finished: Finished, execute: Execute, column: str, label: str) -> None:
    assert execute(f"UPDATE shop_jobeffect SET {column} = '{label}' WHERE id = {ONE_EFFECT}") == 1
    assert finished.totals() == WELL | {"wrong_tenant": 1}


def test_an_effect_of_an_earlier_run_of_its_job_is_duplicated(finished: Finished, execute: Execute) -> None:
    assert execute(f"UPDATE shop_jobeffect SET fence = fence - 1 WHERE id = {ONE_EFFECT}") == 1
    assert finished.totals() == WELL | {"duplicated": 1}


def test_an_order_that_is_not_there_is_lost(finished: Finished, execute: Execute) -> None:
    assert execute(f"DELETE FROM shop_order WHERE upload_id = {finished.upload_id} AND line = 2") == 1
    assert finished.totals() == WELL | {"lost": 1}


def test_an_order_that_is_not_as_in_the_file_is_one_too_few_and_one_too_many(finished: Finished, execute: Execute) -> None:
    assert execute(f"UPDATE shop_order SET amount = amount + 0.01 WHERE upload_id = {finished.upload_id} AND line = 2") == 1
    assert finished.totals() == WELL | {"lost": 1, "duplicated": 1}


def test_a_bad_row_that_was_not_reported_is_lost(finished: Finished, execute: Execute) -> None:
    assert execute("DELETE FROM shop_rejectedrow WHERE line = (SELECT min(line) FROM shop_rejectedrow)") == 1
    assert finished.totals() == WELL | {"lost": 1}


def test_a_job_that_disappeared_is_lost(finished: Finished, execute: Execute) -> None:
    assert execute(f"DELETE FROM tenant_queue_job WHERE task = '{import_orders.name}'") == 1
    assert finished.totals()["lost"] == 1


def test_a_job_of_another_workspace_than_asked_is_of_a_wrong_tenant(finished: Finished, execute: Execute) -> None:
    assert execute(f"UPDATE tenant_queue_job SET tenant_id = 'somebody-else' WHERE task = '{import_orders.name}'") == 1
    assert finished.totals()["wrong_tenant"] >= 1


def test_a_reset_without_its_message_is_lost(finished: Finished) -> None:
    told = replace(finished.expected(), mailed=finished.expected().mailed[1:])
    from sampleproject.demo import checks

    assert checks.totals(checks.check(connection, told)) == WELL | {"lost": 1}


def test_a_webhook_for_another_workspace_is_of_a_wrong_tenant(finished: Finished) -> None:
    job_id, _ = finished.received.pop()
    finished.received.append((job_id, "somebody-else"))
    assert finished.totals() == WELL | {"wrong_tenant": 1}


def test_tables_without_row_security_are_a_wrong_tenant(finished: Finished, execute: Execute) -> None:
    execute("ALTER TABLE shop_monthlyreport NO FORCE ROW LEVEL SECURITY")
    try:
        assert finished.totals()["wrong_tenant"] > 0
    finally:
        execute("ALTER TABLE shop_monthlyreport FORCE ROW LEVEL SECURITY")


def test_waits_are_measured_for_each_class_of_work(finished: Finished) -> None:
    noisy = finished.shop.noisy.workspace_id
    measured = measure.measure(connection, tenants=finished.shop.tenants, noisy=noisy, asked=finished.asked, slots=4)
    counts = {key: waits.n for key, waits in measured.waits.items()}
    assert counts == {("quiet", "interactive"): 8, ("quiet", "default"): 4 + 7, ("noisy", "bulk"): 1 + 5}
    assert all(0 < waits.p50_ms <= waits.p99_ms <= waits.max_ms < 60_000 for waits in measured.waits.values())
    assert measured.jobs == 8 + 11 + 6


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What both runs tell the command, to be changed; pytest keeps its own signal handlers."""
    result = a_result()
    monkeypatch.setattr("sampleproject.demo.interruption.listen", lambda: None)
    monkeypatch.setattr("sampleproject.demo.story.run", lambda options, view: result)
    return result


def a_result(**changes: Any) -> dict[str, Any]:
    """What a run in which all went well has to tell."""
    waits = [
        {"party": party, "queue": queue, "n": 10, "p50_ms": 5.0, "p99_ms": 9.0, "max_ms": 9.0}
        for party, queue in (("quiet", "interactive"), ("quiet", "default"), ("noisy", "bulk"))
    ]
    numbers = {"drain_per_s": 100.0, "drain_seconds": 3.0, "idle_slots": 4.0, "slots": 16, "jobs": 300, "dead_letters": 4, "poisons": 4}
    return {"findings": [], "waits": waits, **WELL, **numbers, **changes}


@pytest.mark.parametrize("changes", [{"lost": 1}, {"duplicated": 1}, {"wrong_tenant": 1}, {"dead_letters": 3}])
def test_the_command_exits_with_1_when_a_check_fails(changes: dict[str, int], told: dict[str, Any], capsys: Any) -> None:
    told |= changes
    with pytest.raises(SystemExit) as exit_of:
        call_command("demo", json=True, only="fair")
    assert exit_of.value.code == 1
    assert json.loads(capsys.readouterr().out).items() >= changes.items()


def test_the_command_returns_when_no_check_fails(told: dict[str, Any], capsys: Any) -> None:
    call_command("demo", json=True, rows=1000)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["jobs"], printed["fair"]["quiet"]["interactive"]["p99_ms"]) == (600, 9.0)


@pytest.mark.parametrize(("fair_rate", "passes"), [(79.0, False), (80.0, True), (125.0, True), (126.0, False)])
def test_the_drain_rates_must_be_alike(fair_rate: float, passes: bool) -> None:
    results = {"fifo": a_result(), "fair": a_result(drain_per_s=fair_rate)}
    (checked,) = [check for check in report.verdict(results, rows=200_000) if check.sentence.startswith("drain rate")]
    assert checked.passed is passes
