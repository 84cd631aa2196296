"""What is stored of an error: always storable, bounded, without the payload's secrets."""

from __future__ import annotations

import pytest

from django_tenant_queue.failure import FRAMES_MAX, MESSAGE_MAX, TRACEBACK_MAX, describe, secrets_of


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def deep(n: int) -> None:
    if n == 0:
        raise ValueError("the bottom")
    deep(n - 1)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\x1b[31mred", "line\r\nbreak", "\u202eright to left", "x" * 10_000_000])
def test_any_message_becomes_storable_text(text: str) -> None:
    """G07: NUL, lone surrogates, ANSI, CRLF, RTL override, ten megabytes."""
    found = describe(raised(ValueError(text)))
    assert len(found.message) <= MESSAGE_MAX and len(found.traceback) <= TRACEBACK_MAX
    assert not set("\0\x1b\r\u202e") & set(found.message + found.traceback)
    found.message.encode(), found.traceback.encode()


def test_an_error_that_cannot_say_its_text_is_still_recorded() -> None:
    found = describe(raised(Unprintable()))
    assert "could not be read" in found.message and found.error_class.endswith("Unprintable")
    assert "in raised" in found.traceback


def test_of_a_deep_stack_the_innermost_frames_are_kept() -> None:
    """G08: the place where it broke is worth more than the way there."""
    try:
        deep(900)
    except ValueError as error:
        found = describe(error)
    assert found.traceback.count("deep(n - 1)") <= FRAMES_MAX and "the bottom" in found.traceback


def test_a_cycle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert describe(one).traceback.count("ValueError: one") == 1


def test_payload_secrets_are_replaced_wherever_they_appear() -> None:
    """H12: the value of a secret-looking argument is in no stored text."""
    payload = {
        "user": "ann",
        "password": "hunter2-canary",
        "cards": [{"number": 4111111111111111}],
        "nested": {"api_key": {"value": "k-canary"}},
    }
    secrets = secrets_of(payload)
    error = raised(ValueError("login of ann with hunter2-canary, 4111111111111111 and k-canary failed"))
    found = describe(error, secrets)
    assert "canary" not in found.message + found.traceback and "4111111111111111" not in found.message
    assert "login of ann with [redacted]" in found.message


def test_details_of_a_database_error_are_left_out() -> None:
    """I16: Postgres puts other rows' values behind DETAIL."""
    error = raised(ValueError('duplicate key value violates unique constraint "x"\nDETAIL:  Key (email)=(other@tenant) already exists.'))
    found = describe(error)
    assert "other@tenant" not in found.message + found.traceback and "duplicate key" in found.message


def test_the_same_cause_has_the_same_fingerprint() -> None:
    errors = []
    for n in (3, 5):
        try:
            deep(n)
        except ValueError as error:
            errors.append(describe(error).fingerprint)
    assert errors[0] == errors[1] != describe(raised(KeyError("x"))).fingerprint
