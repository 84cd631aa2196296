"""An exception as texts that can always be stored: cleaned, bounded, redacted. Never raises.

Locals are never stored. Values that the payload holds under a secret-looking name are replaced wherever they appear.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MESSAGE_MAX = 2000
TRACEBACK_MAX = 20_000
FRAMES_MAX = 40
CHAIN_MAX = 10
REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|authori[sz]ation|card|cvv|cvc|iban|ssn|credential|private_?key|session|cookie|otp|pin$",
    re.I,
)
_DETAIL = re.compile(r"^(DETAIL|CONTEXT):.*", re.M | re.S)  # Postgres puts other rows' values there


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What is stored of an error. `fingerprint` is equal for equal causes: class, and the place it was raised."""

    error_class: str
    message: str
    traceback: str
    fingerprint: str


def describe(error: BaseException, secrets: Iterable[str] = ()) -> ErrorText:
    """The texts of `error`; `secrets` are replaced by [redacted]."""
    name = _class_name(error)
    hidden = sorted((s for s in secrets if len(s) >= 3), key=len, reverse=True)
    message = clean(_DETAIL.sub("", _text(error)), MESSAGE_MAX, hidden)
    try:
        trace = clean(_DETAIL.sub("", _traceback(error)), TRACEBACK_MAX, hidden)
    except Exception:
        trace = "(the traceback could not be read)"
    return ErrorText(name, message, trace, fingerprint(name, error))


def clean(text: str, limit: int, hidden: Iterable[str] = ()) -> str:
    """No secrets, NUL, lone surrogates or control characters but newline and tab; at most `limit` characters."""
    for secret in hidden:
        text = text.replace(secret, REDACTED)
    text = text[: limit * 2].encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= limit else text[: limit // 2] + "\n[...]\n" + text[-(limit // 2) + 8 :]


def secrets_of(payload: Any, name: str = "") -> list[str]:
    """Strings and numbers that stand under a secret-looking name anywhere in a payload."""
    found, todo = [], [(name, payload)]
    while todo:
        key, value = todo.pop()
        if isinstance(value, Mapping):
            # below a secret-looking name everything is secret
            todo.extend((key if _SECRET_NAME.search(key) else str(inner), item) for inner, item in value.items())
        elif isinstance(value, list):
            todo.extend((key, item) for item in value)
        elif _SECRET_NAME.search(key) and isinstance(value, str | int | float) and not isinstance(value, bool):
            found.append(str(value))
    return found


def fingerprint(name: str, error: BaseException | None = None) -> str:
    """A short hash of the error class and of the file and function that raised it (not the line: edits move it)."""
    where = ""
    try:
        step = error.__traceback__ if error is not None else None
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        if step is not None:
            where = f"{step.tb_frame.f_globals.get('__name__')}:{step.tb_frame.f_code.co_name}"
    except Exception:
        where = "?"
    return hashlib.blake2s(f"{name}|{where}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def _class_name(error: BaseException) -> str:
    kind = type(error)
    try:
        module = kind.__module__
        name = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    except Exception:
        name = "Exception"
    return clean(name, 255)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(the error's own text could not be read)"


def _traceback(error: BaseException) -> str:
    """The innermost frames of the error and of its causes; text only, no locals."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(parts) < CHAIN_MAX:
        seen.add(id(current))
        frames = "".join(traceback.format_tb(current.__traceback__, limit=-FRAMES_MAX))
        parts.append(f"Traceback (most recent call last):\n{frames}{_class_name(current)}: {_text(current)[:MESSAGE_MAX]}\n")
        following = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if following is None:
            break
        current = following
    return "\nduring which:\n".join(reversed(parts))
