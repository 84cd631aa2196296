"""The seal: what it covers, what it refuses, and how its keys rotate."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_tenant_queue.envelope import Envelope
from django_tenant_queue.exceptions import BadSeal, ImproperlyConfiguredQueue, UnknownSealKey
from django_tenant_queue.seal import enqueued_at_text, seal, verify

MADE = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
ENVELOPE = Envelope(
    job_id=uuid.UUID("0195f000-0000-7000-8000-000000000001"),
    tenant_id="acme",
    actor_id="42",
    actor_type="user",
    task="shop.tasks.import_orders",
    payload='{"upload_id":7}',
    queue="bulk",
    priority=0,
    cost=1000,
    enqueued_at=MADE,
    correlation_id="c-1",
    trace="",
)


def edited(**changes: Any) -> Envelope:
    return dataclasses.replace(ENVELOPE, **changes)


def test_an_untouched_envelope_verifies() -> None:
    key_id, mac = seal(ENVELOPE)
    assert (len(key_id), len(mac)) == (16, 64)
    verify(ENVELOPE, key_id, mac)


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": uuid.UUID("0195f000-0000-7000-8000-000000000002")},
        {"tenant_id": "acme2"},
        {"tenant_id": None},
        {"tenant_id": ""},
        {"actor_id": "43"},
        {"actor_id": None},
        {"actor_type": "system"},
        {"correlation_id": "c-2"},
        {"task": "shop.tasks.import_order"},
        {"payload": '{"upload_id":8}'},
        {"payload": '{"upload_id": 7}'},
        {"enqueued_at": MADE + timedelta(microseconds=1)},
    ],
)
def test_an_edited_field_breaks_the_seal(changes: dict[str, Any]) -> None:
    """J02."""
    with pytest.raises(BadSeal) as caught:
        verify(edited(**changes), *seal(ENVELOPE))
    assert "edited" in str(caught.value)


def test_a_seal_of_another_job_does_not_fit() -> None:
    """J02: a valid old seal under a new id."""
    other = edited(job_id=uuid.uuid4())
    with pytest.raises(BadSeal):
        verify(other, *seal(ENVELOPE))


def test_what_operators_may_move_is_not_sealed() -> None:
    verify(edited(queue="default", priority=5, cost=1, trace="x"), *seal(ENVELOPE))


def test_null_is_not_the_empty_string() -> None:
    assert seal(edited(actor_id=None)) != seal(edited(actor_id=""))
    assert seal(edited(tenant_id=None, actor_id="")) != seal(edited(tenant_id="", actor_id=None))


_field = st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@given(st.tuples(_field, _field), st.tuples(_field, _field))
def test_no_field_runs_into_the_next(one: tuple[str | None, str | None], other: tuple[str | None, str | None]) -> None:
    same = seal(edited(tenant_id=one[0], actor_id=one[1])) == seal(edited(tenant_id=other[0], actor_id=other[1]))
    assert same == (one == other)


@pytest.mark.parametrize("between", ["\1", "\0", "\1\0\0\0\0\0\0\0\1", ""])
def test_text_that_looks_like_a_frame_does_not_move_a_boundary(between: str) -> None:
    """J02: a tenant id may hold control characters."""
    assert seal(edited(tenant_id=f"a{between}b", actor_id="c")) != seal(edited(tenant_id="a", actor_id=f"b{between}c"))


@pytest.mark.parametrize("length", [0, 1, 32, 63])
def test_a_shortened_mac_is_refused(length: int) -> None:
    """J02."""
    key_id, mac = seal(ENVELOPE)
    with pytest.raises(BadSeal):
        verify(ENVELOPE, key_id, mac[:length])


@pytest.mark.parametrize("bend", [lambda mac: mac + "0", str.upper, lambda mac: "é" * 64, lambda mac: "\ud800", lambda mac: None])
def test_a_mac_of_another_shape_is_refused(bend: Any) -> None:
    """J02: also text that compare_digest does not take."""
    key_id, mac = seal(edited(payload='{"upload_id":77}'))
    assert mac != mac.upper()
    with pytest.raises(BadSeal):
        verify(edited(payload='{"upload_id":77}'), key_id, bend(mac))


@pytest.mark.parametrize("key_id", [None, ""])
def test_a_row_without_a_key_id_is_refused(key_id: str | None) -> None:
    """J02."""
    with pytest.raises(BadSeal):
        verify(ENVELOPE, key_id, seal(ENVELOPE)[1])


def test_a_key_id_that_is_not_known_here_is_another_error() -> None:
    """J02: a rotation in progress must not make a dead letter."""
    with pytest.raises(UnknownSealKey) as caught:
        verify(ENVELOPE, "0" * 16, seal(ENVELOPE)[1])
    assert caught.value.key_id == "0" * 16
    assert "SEAL_KEYS" in str(caught.value)


def test_keys_rotate() -> None:
    """J02: two keys are accepted meanwhile; the newest seals; one that is gone is not known."""
    with override_settings(TENANT_QUEUE={"SEAL_KEYS": ["old"]}):
        old = seal(ENVELOPE)
    with override_settings(TENANT_QUEUE={"SEAL_KEYS": ["new", "old"]}):
        new = seal(ENVELOPE)
        verify(ENVELOPE, *old)
        verify(ENVELOPE, *new)
        with pytest.raises(BadSeal):
            verify(ENVELOPE, new[0], old[1])
    with override_settings(TENANT_QUEUE={"SEAL_KEYS": ["new"]}):
        verify(ENVELOPE, *new)
        with pytest.raises(UnknownSealKey):
            verify(ENVELOPE, *old)


def test_secret_key_and_its_fallbacks_are_used_when_there_are_no_seal_keys() -> None:
    """J02."""
    with override_settings(TENANT_QUEUE={}, SECRET_KEY="first", SECRET_KEY_FALLBACKS=[]):
        first = seal(ENVELOPE)
    with override_settings(TENANT_QUEUE={}, SECRET_KEY="second", SECRET_KEY_FALLBACKS=["first"]):
        verify(ENVELOPE, *first)
        assert seal(ENVELOPE)[0] != first[0]
    with override_settings(TENANT_QUEUE={}, SECRET_KEY="second", SECRET_KEY_FALLBACKS=[]), pytest.raises(UnknownSealKey):
        verify(ENVELOPE, *first)


@pytest.mark.parametrize("key", ["", None, 5])
def test_an_empty_key_is_refused(key: Any) -> None:
    with override_settings(TENANT_QUEUE={"SEAL_KEYS": ["fine", key]}), pytest.raises(ImproperlyConfiguredQueue, match="SEAL_KEYS"):
        seal(ENVELOPE)


def test_the_time_has_one_spelling() -> None:
    """The ledger gives back the same moment in the zone of its session."""
    elsewhere = MADE.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert enqueued_at_text(elsewhere) == enqueued_at_text(MADE) == "2026-03-01T12:30:15.123456+00:00"
    assert enqueued_at_text(MADE.replace(microsecond=0)) == "2026-03-01T12:30:15.000000+00:00"
    verify(edited(enqueued_at=elsewhere), *seal(ENVELOPE))
    with pytest.raises(ValueError, match="aware"):
        enqueued_at_text(datetime(2026, 1, 1))  # noqa: DTZ001
