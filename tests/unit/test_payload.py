"""The payload text: unchanged round trips, and refusals that name the place."""

from __future__ import annotations

import json
import math
import sys
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from django.db import models
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_tenant_queue import payload as payload_module
from django_tenant_queue.exceptions import InvalidPayload, UnreadablePayload
from django_tenant_queue.payload import dump, load


def stored(payload: Any, max_bytes: int = 65_536, max_depth: int = 64) -> str:
    return dump(payload, max_bytes=max_bytes, max_depth=max_depth)


def refusal(payload: Any, **limits: int) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        stored(payload, **limits)
    return caught.value


def nested(depth: int, of: type = list) -> dict[str, Any]:
    """A payload whose deepest container is at this depth; the payload itself is depth 1."""
    value: Any = of()
    for _ in range(depth - 2):
        value = [value] if of is list else {"d": value}
    return {"d": value}


_text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text
_values = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(_text, inner), max_leaves=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_text, _values, max_size=5))
def test_what_is_accepted_comes_back_unchanged(payload: dict[str, Any]) -> None:
    text = stored(payload, max_bytes=10_000_000)
    back = load(text)
    assert repr(back) == repr(payload)  # repr: -0.0 is not 0.0, True is not 1, and keys keep their order
    assert stored(back, max_bytes=10_000_000) == text


@pytest.mark.parametrize("of", [list, dict])
def test_the_size_limit_is_exact(of: type) -> None:
    """H01: limit - 1 and limit pass, limit + 1 does not; also in bytes that are not characters."""
    frame = len(stored({"x": [""] if of is list else {"": ""}}))
    for fill, limit in (("a", 100), ("é", 101), ("\u2028", 400)):
        width = len(fill.encode())
        room = (limit - frame) // width
        value = fill * room
        payload = {"x": [value] if of is list else {"": value}}
        size = len(stored(payload, max_bytes=limit).encode())
        assert limit - width < size <= limit
        assert "larger than" in refusal(payload, max_bytes=size - 1).reason


def test_the_smallest_payloads_are_stored() -> None:
    """H01: no argument, and an empty one."""
    assert stored({}) == "{}"
    assert load(stored({"x": ""})) == {"x": ""}
    assert stored({"x": [[], {}, [[]]]}, max_bytes=19) == '{"x":[[],{},[[]]]}'
    assert stored({"x": [[], {}, [[]]]}, max_bytes=18) == '{"x":[[],{},[[]]]}'
    refusal({"x": [[], {}, [[]]]}, max_bytes=17)


@pytest.mark.parametrize(
    "payload",
    [{"file": "x" * 100_000_000}, {"rows": [0] * 10_000_000}, {"k" * 70_000: 1}, {"rows": [["x" * 1000] * 40] * 40}],
    ids=["text", "list", "key", "shared"],
)
def test_a_huge_payload_is_refused_before_it_is_serialised(payload: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """H01: 100 MB."""
    monkeypatch.setattr(payload_module.json, "dumps", lambda *_, **__: pytest.fail("serialised"))
    error = refusal(payload)
    assert "65536 bytes (PAYLOAD_MAX_BYTES)" in error.reason
    assert len(str(error)) < 300


def test_the_place_of_a_huge_value_is_named() -> None:
    """H01."""
    assert refusal({"orders": [{"csv": "x" * 70_000}]}).path == "payload.orders[0].csv"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, float("1e400"), -float("1e999")])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    """H02: also 1e400 and 1e140000, which are infinite before they get here."""
    error = refusal({"rows": [1.5, {"price": number}]})
    assert error.path == "payload.rows[1].price"
    assert repr(number) in error.reason


@pytest.mark.parametrize("number", [-0.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1e22, 1e23, 123456789.123456789])
def test_floats_survive_to_the_last_bit(number: float) -> None:
    """H02: -0.0 is kept, because the payload is stored as text."""
    back = load(stored({"x": number}))["x"]
    assert type(back) is float
    assert back.hex() == number.hex()


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400", "1e140000", "-1e400"])
def test_such_numbers_in_a_stored_row_make_it_unreadable(text: str) -> None:
    """H02, H14: written by raw SQL."""
    with pytest.raises(UnreadablePayload):
        load(f'{{"x":{text}}}')


@pytest.mark.parametrize("text", ["\ud800", "ok\udfffok", "\udc00\ud800", "é\ud83d"])
def test_a_lone_surrogate_is_refused_with_its_place(text: str) -> None:
    """H03."""
    error = refusal({"rows": [{"name": "fine"}, {"name": text}]})
    assert error.path == "payload.rows[1].name"
    assert "lone surrogate" in error.reason
    assert str(error).isascii()  # the sentence itself can be stored and printed


def test_a_lone_surrogate_in_a_key_is_refused() -> None:
    """H03."""
    error = refusal({"rows": {"a\ud800": 1}})
    assert error.path == "payload.rows"
    assert "key" in error.reason


@pytest.mark.parametrize(
    "text", ["\U0001f600", "\ufffe\uffff\U0010ffff", "\ufeffbom", "\u2028\u2029", "\x01\x1f\x7f", "e\u0301", "\u202eabc", '"\\/']
)
def test_every_other_text_comes_back_byte_for_byte(text: str) -> None:
    """H03: surrogate pairs, non-characters, BOM, U+2028, control characters, combining marks, right-to-left override."""
    assert load(stored({text: text})) == {text: text}
    assert json.loads(stored({"x": text}))["x"].encode() == text.encode()


def test_text_is_stored_as_utf8_not_as_escapes() -> None:
    """H03: six bytes for each character of a Cyrillic name would be a sixth of the limit."""
    assert stored({"name": "Юля"}) == '{"name":"Юля"}'


@pytest.mark.parametrize("payload", [{"x": "a\0b"}, {"a\0b": 1}, {"x": [{"\0": 1}]}])
def test_nul_is_refused(payload: dict[str, Any]) -> None:
    """H03: NUL is no text for Postgres."""
    assert "NUL" in refusal(payload).reason


@pytest.mark.parametrize("of", [list, dict])
def test_the_depth_limit_is_exact(of: type) -> None:
    """H05: 64 passes, 65 does not."""
    assert load(stored(nested(64, of))) == nested(64, of)
    assert "deeper than 64 levels (PAYLOAD_MAX_DEPTH)" in refusal(nested(65, of)).reason


@pytest.mark.parametrize("of", [list, dict])
@pytest.mark.parametrize("depth", [900, 1000, 5000, 100_000])
def test_any_depth_is_refused_with_a_sentence(depth: int, of: type) -> None:
    """H05: never RecursionError."""
    error = refusal(nested(depth, of))
    assert "deeper" in error.reason
    assert len(error.path) < 300


def test_a_generous_depth_limit_still_gives_no_recursion_error() -> None:
    """H05: PAYLOAD_MAX_DEPTH above what json can write."""
    assert "deeper" in refusal(nested(100_000), max_bytes=10_000_000, max_depth=1_000_000).reason


def test_a_payload_that_contains_itself_is_refused() -> None:
    """H05."""
    loop: list[Any] = []
    loop.append(loop)
    assert "contains itself" in refusal({"x": loop}).reason


@pytest.mark.parametrize("depth", [900, 5000, 100_000])
@pytest.mark.parametrize("shape", ["[%s]", '{"d":%s}'])
def test_a_deep_row_written_by_hand_is_unreadable(depth: int, shape: str) -> None:
    """H05, H14: RecursionError does not get out of `load`; how much fits depends on the interpreter and the caller's own depth."""
    opening, closing = shape.split("%s")
    text = '{"x":' + opening * depth + "1" + closing * depth + "}"
    if depth == 100_000:
        with pytest.raises(UnreadablePayload, match="too deeply"):
            load(text)
    else:
        with suppress(UnreadablePayload):
            assert load(text)["x"]


def hex_digits(number: int) -> str:
    return f"{number.bit_length()} bits"


@pytest.mark.parametrize(
    "number", [2**53 - 1, 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 10**4299, 10**4300 - 1, -(10**4300 - 1)], ids=hex_digits
)
def test_integers_survive(number: int) -> None:
    """H06: 2^53 +- 1, 2^63, 4300 digits."""
    assert load(stored({"x": number})) == {"x": number}


@pytest.mark.parametrize("number", [10**4300, -(10**4300), 10**20_000], ids=hex_digits)
def test_integers_that_json_cannot_read_back_are_refused(number: int) -> None:
    """H06: 4301 digits."""
    error = refusal({"a": {"b": number}})
    assert error.path == "payload.a.b"
    assert "4300 digits" in error.reason


def test_the_limit_on_integers_does_not_follow_a_generous_process() -> None:
    """H06: the worker may have the default limit."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert "4300 digits" in refusal({"x": 10**4300}).reason
    finally:
        sys.set_int_max_str_digits(before)


def test_a_longer_integer_in_a_stored_row_makes_it_unreadable() -> None:
    """H06, H14."""
    with pytest.raises(UnreadablePayload):
        load('{"x":' + "1" * 4301 + "}")


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Point:
    x: int


class Upload(models.Model):
    class Meta:
        app_label = "django_tenant_queue"
        managed = False


def _numbers() -> Iterator[int]:
    yield 1


REFUSED = {
    "decimal": (Decimal("1.10"), "str(...)"),
    "datetime": (datetime(2026, 1, 1, tzinfo=UTC), ".isoformat()"),
    "date": (datetime(2026, 1, 1, tzinfo=UTC).date(), ".isoformat()"),
    "timedelta": (timedelta(1), ".total_seconds()"),
    "uuid": (uuid.UUID(int=1), "str(...)"),
    "set": ({1}, "sorted"),
    "frozenset": (frozenset(), "sorted"),
    "bytes": (b"x", "base64"),
    "bytearray": (bytearray(b"x"), "base64"),
    "tuple": ((1, 2), "list(...)"),
    "dataclass": (Point(1), "asdict"),
    "model": (Upload(pk=7), "pk"),
    "generator": (_numbers(), "list(...)"),
    "lazy text": (gettext_lazy("Save"), "str(...)"),
    "lazy object": (SimpleLazyObject(lambda: pytest.fail("evaluated")), "the value it stands for"),
    "str enum": (Colour.RED, ".value"),
    "int enum": (Level.LOW, ".value"),
    "safe text": (mark_safe("x"), "subclass of str"),
    "ordered dict": (OrderedDict(a=1), "dict(...)"),
    "complex": (1j, "complex"),
    "class": (Point, "pass only"),
    "function": (stored, "pass only"),
    "none type": (NotImplemented, "pass only"),
}


@pytest.mark.parametrize(("value", "advice"), REFUSED.values(), ids=REFUSED)
def test_what_json_would_change_is_refused_with_path_type_and_advice(value: Any, advice: str) -> None:
    """H07."""
    for payload, path in (({"x": value}, "payload.x"), ({"x": [{"y z": value}]}, "payload.x[0]['y z']")):
        error = refusal(payload)
        assert error.path == path
        assert advice in error.reason
        assert type(value).__name__ in error.reason


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1,), Colour.RED])
def test_a_key_that_is_not_a_plain_string_is_refused(key: Any) -> None:
    """H07: 1 would come back as '1'."""
    error = refusal({"x": [{key: "v"}]})
    assert error.path == "payload.x[0]"
    assert "key" in error.reason


@pytest.mark.parametrize("payload", [None, [1], "text", 5, (("a", 1),)])
def test_the_payload_itself_must_be_a_mapping(payload: Any) -> None:
    """H07."""
    error = refusal(payload)
    assert error.path == "payload"
    assert "dict of arguments by name" in error.reason


def test_the_first_problem_of_the_document_is_the_one_named() -> None:
    """H07."""
    assert refusal({"a": [1, {"b": {1}}], "c": {2}}).path == "payload.a[1].b"


def test_a_refusal_shows_the_type_and_never_the_value() -> None:
    """H12: an error goes to logs."""
    assert "s3cret" not in str(refusal({"password": b"s3cret"}))
    assert "s3cret" not in str(refusal({"password": "s3cret" * 20_000}))


def test_the_text_is_a_snapshot() -> None:
    """H11: the caller changes the payload after the call."""
    rows = [1]
    text = stored({"rows": rows})
    rows.append(2)
    assert load(text) == {"rows": [1]}


@pytest.mark.parametrize(
    "text", ["", "x", "{", "[1]", "1", "null", '"x"', '{"a":1}x', "{'a':1}", '{"a":}', "\x80\x04\x95", "{\x00}", '{"a":"\n"}']
)
def test_text_that_is_no_payload_is_unreadable(text: str) -> None:
    """H14: garbage in the column. The sentence does not repeat it."""
    with pytest.raises(UnreadablePayload) as caught:
        load(text)
    assert str(caught.value).startswith("The stored payload is ")


@given(st.text())
def test_load_raises_nothing_else(text: str) -> None:
    """H14."""
    with suppress(UnreadablePayload):
        load(text)
