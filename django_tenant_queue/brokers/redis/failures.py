"""What a Redis error means for the schedule: come back later, mend the configuration, or a fault in a script."""

from __future__ import annotations

import re
from collections.abc import Iterable

from redis import exceptions as redis_errors

from ...exceptions import BrokerMisconfigured, ScheduleError, ScheduleUnavailable, VerbFailed

# Error codes that pass with time. A script's inner error carries its code inside the text on Redis 6.2 ("... -OOM command not allowed").
_PASSING = ("LOADING", "MASTERDOWN", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "NOREPLICAS", "OOM", "MISCONF", "UNBLOCKED")
_INNER_CODE = re.compile(rf"(?:^|-)({'|'.join([*_PASSING, 'NOPERM'])})(?: |$)")
_REFUSED = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.NoPermissionError,
    redis_errors.AuthenticationWrongNumberOfArgsError,
)
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (redis_errors.BusyLoadingError, "loading"),
    (redis_errors.OutOfMemoryError, "oom"),
    (redis_errors.ReadOnlyError, "readonly"),
    (redis_errors.MasterDownError, "masterdown"),
    (redis_errors.ClusterDownError, "clusterdown"),
    (redis_errors.SlotNotCoveredError, "clusterdown"),
    (redis_errors.TryAgainError, "tryagain"),
    (redis_errors.TimeoutError, "timeout"),
    (redis_errors.InvalidResponse, "protocol"),
    (redis_errors.ConnectionError, "connection"),
)
DROPS_CONNECTIONS = frozenset({"readonly", "masterdown", "protocol"})  # these say: this connection leads to the wrong place
# Worth asking again within one call; a full memory or missing replicas are not mended in two seconds.
PASSES_SOON = frozenset(
    {"connection", "timeout", "loading", "masterdown", "busy", "tryagain", "clusterdown", "readonly", "protocol", "maxclients", "unblocked"}
)


def read_failure(error: Exception, *, verb: str, place: str, secrets: Iterable[str] = ()) -> ScheduleError:
    """Turn a redis error into one of ours. The text never holds one of `secrets`; the redis error is not chained, because its
    traceback's local variables hold the password. `place` says which server."""
    text = _scrubbed(str(error), secrets)
    if isinstance(error, redis_errors.AskError) or text.startswith(("MOVED ", "ASK ")):  # MovedError is an AskError
        return BrokerMisconfigured(
            f"The schedule at {place} is a node of a Redis Cluster: set TENANT_QUEUE['CLIENT_FACTORY'] to a callable that makes "
            "a cluster client."
        )
    code = _INNER_CODE.search(text)
    if isinstance(error, _REFUSED) or (code and code[1] == "NOPERM"):
        return BrokerMisconfigured(
            f"The schedule at {place} refuses us ({text}): check the user, the password and the permissions of the cache alias."
        )
    kind = _kind(error, text, code)
    if kind is None:
        return VerbFailed(verb, text)
    return ScheduleUnavailable(f"The schedule at {place} did not do {verb!r} ({kind}: {text}); it is tried again later.", kind=kind)


def _kind(error: Exception, text: str, code: re.Match[str] | None) -> str | None:
    if "max number of clients" in text:
        return "maxclients"
    for cls, kind in _KINDS:
        if isinstance(error, cls):
            return kind
    if isinstance(error, OSError):
        return "connection"
    return code[1].lower() if code else None


def _scrubbed(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(text.split())[:500] or "no text"
