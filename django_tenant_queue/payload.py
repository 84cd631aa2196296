"""A job's arguments as text: what goes in comes back unchanged, or is refused with the place that cannot.

`dump` walks the value without recursion and counts bytes as it goes, so that a deep, huge or self-referring payload is refused
before it is serialised. The text is JSON: UTF-8 as is, no spaces, keys in the caller's order.
It is stored as `text`, because jsonb changes numbers.
"""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from django.utils.functional import LazyObject, Promise

from .exceptions import InvalidPayload, UnreadablePayload

# json reads no longer integers back where the interpreter's limit is the default; a smaller limit of this process counts too.
INTEGER_DIGITS = 4300

_Where = tuple["_Where", object] | None  # the way to a value: its parent's way and its key or index

_ADVICE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (Enum, "pass its .value"),
    (tuple, "it would come back as a list; pass list(...)"),
    ((set, frozenset), "pass sorted(...), a list"),
    ((bytes, bytearray, memoryview), "pass text, for example base64"),
    (Decimal, "pass str(...), a float would round"),
    (UUID, "pass str(...)"),
    ((date, time), "pass .isoformat()"),
    (timedelta, "pass .total_seconds()"),
    (Promise, "a lazy translation has no language in a worker; pass str(...)"),
    (LazyObject, "pass the value it stands for"),
    (types.GeneratorType, "it can be read only once; pass list(...)"),
    (complex, "JSON has no complex numbers"),
    (str, "it is a subclass of str and would come back as str; pass str(...) of it"),
    (int, "it is a subclass of int and would come back as int; pass int(...)"),
    (float, "it is a subclass of float and would come back as float; pass float(...)"),
    (list, "it is a subclass of list and would come back as list; pass list(...)"),
    (Mapping, "it would come back as a plain dict; pass dict(...)"),
)


def dump(payload: Mapping[str, Any], *, max_bytes: int, max_depth: int) -> str:
    """The payload as canonical text of at most `max_bytes` UTF-8 bytes; the payload itself is depth 1.

    Allowed: None, bool, int of at most 4300 digits, finite float, str without NUL and lone surrogates, list, dict with str keys:
    exactly these types. Raises InvalidPayload, with the path, for everything else. The text is a snapshot: later changes do not reach it.
    """
    if not isinstance(payload, Mapping):
        raise InvalidPayload(f"is of type {_type_name(payload)}; pass a dict of arguments by name")
    plain = payload if type(payload) is dict else dict(payload)
    _check(plain, max_bytes, max_depth)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except RecursionError:
        raise InvalidPayload(_too_deep(max_depth)) from None
    except (TypeError, ValueError):
        raise InvalidPayload("was changed by another thread while it was being stored") from None
    if size > max_bytes:
        raise InvalidPayload(_too_large(max_bytes))
    return text


def load(text: str) -> dict[str, Any]:
    """The arguments by name. Raises UnreadablePayload for any text that `dump` cannot have made; never RecursionError."""
    try:
        payload = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise UnreadablePayload("The stored payload is nested too deeply to be read back.") from None
    except (TypeError, ValueError) as error:
        detail = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadablePayload(f"The stored payload is not JSON that can be read back{detail}.") from None
    if not isinstance(payload, dict):
        raise UnreadablePayload(f"The stored payload is a JSON {type(payload).__name__}, not an object of arguments by name.")
    return payload


def _check(payload: dict[Any, Any], max_bytes: int, max_depth: int) -> None:
    """Every value, in document order, without recursion. `room` is what is left of max_bytes if each value were as short as can be."""
    room = max_bytes
    waiting: list[tuple[Any, int, _Where]] = [(payload, 1, None)]
    while waiting:
        value, depth, where = waiting.pop()
        kind = type(value)
        if kind is dict or kind is list:
            room -= _least_size(value)
            if room < 0:
                raise InvalidPayload(_too_large(max_bytes), _path(where))
            if depth > max_depth:
                raise InvalidPayload(_too_deep(max_depth), _path(where))
            for key, child in _children(value, where):
                if kind is dict:
                    room -= len(key)
                waiting.append((child, depth + 1, (where, key)))
        elif kind is str:
            room -= len(value)
            if room >= 0:
                _check_text(value, where)
        else:
            _check_scalar(value, kind, where)
        if room < 0:
            raise InvalidPayload(_too_large(max_bytes), _path(where))


def _least_size(container: dict[Any, Any] | list[Any]) -> int:
    """Brackets (one was counted as a value of the parent), commas and one character for each value; for a dict also quotes and colons."""
    per_child = 5 if type(container) is dict else 2
    return 1 + per_child * len(container) - (1 if container else 0)


def _children(container: dict[Any, Any] | list[Any], where: _Where) -> Iterator[tuple[Any, Any]]:
    """Last child first: the walk takes from the end, and so reports the first bad value of the document."""
    if isinstance(container, list):
        yield from zip(range(len(container) - 1, -1, -1), reversed(container), strict=True)
        return
    for key, child in reversed(container.items()):
        if type(key) is not str:
            raise InvalidPayload(
                f"has the key {key!r:.60} of type {_type_name(key)}, which would come back as a string; use string keys", _path(where)
            )
        _check_text(key, where, "has a key that")
        yield key, child


def _check_text(text: str, where: _Where, subject: str = "is a string that") -> None:
    if "\0" in text:
        raise InvalidPayload(f"{subject} contains NUL (at character {text.index(chr(0))}), which Postgres cannot store", _path(where))
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            f"{subject} contains the lone surrogate {text[error.start]!a} (at character {error.start}), which is not text; "
            "decode the source with errors='replace'",
            _path(where),
        ) from None


def _check_scalar(value: Any, kind: type, where: _Where) -> None:
    if value is None or kind is bool:
        return
    if kind is int:
        digits = min(INTEGER_DIGITS, sys.get_int_max_str_digits() or INTEGER_DIGITS)
        if value.bit_length() > 3 * digits and abs(value) >= 10**digits:
            raise InvalidPayload(
                f"is an integer of more than {digits} digits, which json cannot read back; pass it as hex text", _path(where)
            )
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidPayload(f"is {value!r}, which JSON does not have; pass None or a string", _path(where))
    else:
        raise InvalidPayload(f"is of type {_type_name(value)}: {_advice(value)}", _path(where))


def _advice(value: Any) -> str:
    kind = type(value)  # isinstance() would evaluate a lazy object, with a query for request.user
    if hasattr(kind, "_meta") and hasattr(kind, "pk"):
        return "a model instance would be stale in a worker; pass its pk"
    if hasattr(kind, "__dataclass_fields__"):
        return "pass dataclasses.asdict(...)"
    return next((advice for kinds, advice in _ADVICE if issubclass(kind, kinds)), "pass only None, bool, int, float, str, list and dict")


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _too_large(max_bytes: int) -> str:
    return f"makes the payload larger than {max_bytes} bytes (PAYLOAD_MAX_BYTES); store the data and pass where it is"


def _too_deep(max_depth: int) -> str:
    return f"is nested deeper than {max_depth} levels (PAYLOAD_MAX_DEPTH), or contains itself; pass a flatter value"


def _path(where: _Where) -> str:
    """`payload.rows[3].name`; the middle of a long way and long keys are shortened."""
    steps: list[str] = []
    while where is not None:
        where, key = where
        if isinstance(key, int):
            steps.append(f"[{key}]")
        else:
            text = str(key)
            steps.append(f".{text}" if text.isidentifier() and len(text) <= 60 else f"[{text[:60]!a}]")
    steps.reverse()
    if len(steps) > 12:
        steps[6:-5] = ["..."]
    return "payload" + "".join(steps)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
