"""TENANT_QUEUE as a typed value."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.test import override_settings

from django_tenant_queue import conf as configuration
from django_tenant_queue.conf import Conf, get_conf, on_conf_reset, read
from django_tenant_queue.exceptions import ImproperlyConfiguredQueue


def test_defaults_are_those_of_the_documentation() -> None:
    conf = read({})
    assert (conf.redis_alias, conf.namespace, conf.database, conf.fairness) == ("tenant_queue", "default", "default", "time")
    assert (conf.lease_seconds, conf.renew_seconds, conf.sweep_seconds, conf.relay_seconds, conf.reconcile_seconds) == (8, 2, 1, 0.25, 60)
    assert (conf.max_retries, conf.backoff_cap_seconds, conf.max_crashes, conf.timeout_seconds, conf.grace_seconds) == (5, 3600, 3, 300, 30)
    assert (conf.payload_max_bytes, conf.payload_max_depth, conf.result_max_bytes) == (65_536, 64, 65_536)
    assert (conf.tenant_setting, conf.actor_setting, conf.task_role) == ("app.current_tenant_id", "app.current_actor_id", None)
    assert conf.queue_names == ("interactive", "default", "bulk")


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read({}).namespace = "other"  # type: ignore[misc]


def test_an_unknown_key_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ImproperlyConfiguredQueue, match=r"'LEASE_SECOND'.*Did you mean 'LEASE_SECONDS'"):
        read({"LEASE_SECOND": 8})
    with pytest.raises(ImproperlyConfiguredQueue, match=r"'zzz'.*Known keys"):
        read({"zzz": 8})


BAD: list[dict[str, Any]] = [
    {"FAIRNESS": "random"},
    {"QUANTUM": 0},
    {"QUANTUM": "1"},
    {"LEASE_SECONDS": 0},
    {"LEASE_SECONDS": float("nan")},
    {"LEASE_SECONDS": float("inf")},
    {"LEASE_SECONDS": True},
    {"LEASE_SECONDS": 5},
    {"RELAY_SECONDS": "1"},
    {"MAX_RETRIES": -1},
    {"MAX_CRASHES": 0},
    {"PAYLOAD_MAX_BYTES": -5},
    {"NAMESPACE": ""},
    {"NAMESPACE": "a:b"},
    {"NAMESPACE": "{a}"},
    {"NAMESPACE": None},
    {"TENANT_SETTING": "tenant"},
    {"ACTOR_SETTING": "app.x; drop table"},
    {"QUEUES": {}},
    {"QUEUES": ["a"]},
    {"QUEUES": {"a b": {}}},
    {"QUEUES": {"a": {"max_share": 0}}},
    {"QUEUES": {"a": {"max_share": 1.5}}},
    {"QUEUES": {"a": {"share": 1}}},
    {"SEAL_KEYS": "one string"},
]


@pytest.mark.parametrize("raw", BAD, ids=str)
def test_a_value_out_of_range_is_refused_by_name(raw: dict[str, Any]) -> None:
    with pytest.raises(ImproperlyConfiguredQueue) as caught:
        read(raw)
    assert next(iter(raw)) in str(caught.value)


def test_the_quantum_is_in_the_units_of_the_mode() -> None:
    assert read({}).quantum_units == 100_000  # 0.1 slot-seconds in microseconds
    assert read({"FAIRNESS": "jobs"}).quantum_units == 5_000  # 5 jobs in thousandths
    assert read({"QUANTUM": 0.25}).quantum_units == 250_000


def test_override_settings_is_seen_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "_on_reset", [*configuration._on_reset])  # what this test registers does not outlive it
    forgotten: list[str] = []
    on_conf_reset(lambda: forgotten.append(get_conf().namespace))
    before = get_conf().namespace
    with override_settings(TENANT_QUEUE={"NAMESPACE": "other"}):
        assert get_conf().namespace == "other"
        assert get_conf() is get_conf()
    assert get_conf().namespace == before
    assert forgotten == ["other", before]


def lane_of_type(envelope: Any) -> str:
    return f"{envelope.tenant_id}/{envelope.queue}"


def test_the_lane_key_is_the_tenant_a_constant_or_a_function() -> None:
    @dataclasses.dataclass
    class Asked:
        tenant_id: str | None
        queue: str = "bulk"

    assert read({}).lane_key_of(Asked("acme")) == "acme"
    assert read({}).lane_key_of(Asked(None)) == ""
    assert read({"LANE_KEY": "everyone"}).lane_key_of(Asked("acme")) == "everyone"
    assert read({"LANE_KEY": f"{__name__}.lane_of_type"}).lane_key_of(Asked("acme")) == "acme/bulk"


def test_every_field_is_reachable_by_its_setting() -> None:
    names = {field.name.upper() for field in dataclasses.fields(Conf)}
    assert {"REDIS_ALIAS", "TENANT", "ACTOR", "TASK_ROLE", "LANE_KEY", "CLIENT_FACTORY", "ALLOW_RLS_BYPASS"} <= names
