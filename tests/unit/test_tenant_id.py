"""The one canonicaliser of tenant ids."""

from __future__ import annotations

import uuid
from contextlib import suppress
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from django_tenant_queue.envelope import tenant_id_of
from django_tenant_queue.exceptions import InvalidTenant

ODD_AND_FINE = [
    "a:b",
    "{x}",
    "}",
    "?",
    "[",
    "a b",
    "a\nb",
    "None",
    "..",
    "%00",
    "' OR 1=1--",
    "\U0001f600",
    "\u202eabc",
    "é",
    "e\u0301",
    "**",
    "x" * 128,
]


@pytest.mark.parametrize("value", ODD_AND_FINE)
def test_unusual_text_is_taken_as_it_is(value: str) -> None:
    """I01: no normalisation, no escaping; what is odd is escaped where it is used."""
    assert tenant_id_of(value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty"),
        ("*", "default for all tenants"),
        (" ", "white space"),
        ("\n", "white space"),
        (" acme", "white space"),
        ("acme\t", "white space"),
        ("\u3000acme", "white space"),
        ("a\0b", "NUL"),
        ("a\ud800", "surrogate"),
        ("x" * 129, "129 characters"),
        ("x" * 10_240, "10240 characters"),
    ],
)
def test_text_that_cannot_be_a_tenant_is_refused_with_the_rule(value: str, reason: str) -> None:
    """I01."""
    with pytest.raises(InvalidTenant) as caught:
        tenant_id_of(value)
    assert reason in caught.value.reason
    assert caught.value.value == value
    assert len(str(caught.value)) < 300


@given(st.text(min_size=1, max_size=128), st.text(min_size=1, max_size=128))
def test_two_different_strings_are_two_tenants(one: str, other: str) -> None:
    """I01: two ids never become one."""
    with suppress(InvalidTenant):
        assert (tenant_id_of(one) == tenant_id_of(other)) == (one == other)


@pytest.mark.parametrize("value", [1, "1"])
def test_an_integer_is_its_text(value: Any) -> None:
    """I02: 1 and "1" are one tenant by rule."""
    assert tenant_id_of(value) == "1"


def test_a_uuid_is_its_lower_case_text() -> None:
    """I02: a UUID is its str(); text is taken as is, so upper case and braces are other tenants."""
    value = uuid.UUID("0195F000-0000-7000-8000-00000000000A")
    spellings = [value, str(value), str(value).upper(), f"{{{value}}}", value.hex, value.urn]
    ids = [tenant_id_of(spelling) for spelling in spellings]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 5


@pytest.mark.parametrize("value", [True, False, 1.0, None, b"acme", ["acme"], ("a",), {"a": 1}, Decimal(1), object(), 1j])
def test_another_type_is_refused(value: Any) -> None:
    """I02: True is not 1 and 1.0 is not 1."""
    with pytest.raises(InvalidTenant) as caught:
        tenant_id_of(value)
    assert type(value).__name__ in caught.value.reason
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


class Plan(IntEnum):
    FREE = 1


@pytest.mark.parametrize(
    ("value", "expected"), [(Plan.FREE, "1"), (mark_safe("acme"), "acme"), (0, "0"), (-5, "-5"), (10**120, str(10**120))]
)
def test_what_comes_out_is_a_plain_string(value: Any, expected: str) -> None:
    """I02."""
    assert tenant_id_of(value) == expected
    assert type(tenant_id_of(value)) is str


def test_an_integer_too_long_to_print_is_refused_as_any_other() -> None:
    """I02: str() of it raises, the rule must not."""
    with pytest.raises(InvalidTenant):
        tenant_id_of(10**5000)
