"""The verbs' Lua scripts: read from `lua/<verb>.lua`, fragments included from `lua/lib/`, named by their SHA."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError

INCLUDE = re.compile(r"^--- include ([a-z][a-z0-9_]*)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb as the server sees it. `sha` is what EVALSHA takes: the SHA-1 of `text`."""

    verb: str
    text: str = field(repr=False)
    sha: str

    @classmethod
    def of(cls, verb: str, text: str) -> Script:
        return cls(verb, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def load(verb: str) -> Script:
    """The script of a verb. Raises LookupError when it, or a fragment that it includes, is not in the package."""
    return Script.of(verb, expand(_read(f"{verb}.lua"), set()))


def expand(text: str, seen: set[str]) -> str:
    """Replace each `--- include name` line by the fragment, once: a fragment named again, or by a fragment, is not repeated."""

    def fragment(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return expand(_read(f"lib/{name}.lua"), seen).rstrip("\n")

    return INCLUDE.sub(fragment, text)


def evaluate(client: Any, script: Script, key: str | bytes, args: Sequence[Any]) -> Any:
    """Run one script. A server that does not know it says so before anything is executed, so sending the text then runs it once."""
    try:
        return client.evalsha(script.sha, 1, key, *args)
    except NoScriptError:
        return client.eval(script.text, 1, key, *args)


def evaluate_many(client: Any, script: Script, key: str | bytes, batches: Sequence[Sequence[Any]]) -> list[Any]:
    """Run one script once per batch, in one round trip; only the calls that answered NOSCRIPT are sent again, with the text."""
    pipeline = client.pipeline(transaction=False)
    for args in batches:
        pipeline.evalsha(script.sha, 1, key, *args)
    replies = pipeline.execute(raise_on_error=False)
    for place, reply in enumerate(replies):
        if isinstance(reply, NoScriptError):
            replies[place] = evaluate(client, script, key, batches[place])
        elif isinstance(reply, Exception):
            raise reply
    return replies


def _read(name: str) -> str:
    try:
        return files(__package__).joinpath("lua", *name.split("/")).read_text("utf-8")
    except OSError:
        raise LookupError(f"There is no script lua/{name} in {__package__}.") from None
