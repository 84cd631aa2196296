"""The seal of a job row: an HMAC over what must not be edited or forged, under a key that can be rotated.

Sealed: job id, tenant, actor, actor type, correlation id, task, payload, enqueued_at.
Not sealed: queue, priority, cost, so operators can move jobs.
Keys come from SEAL_KEYS, else from SECRET_KEY and SECRET_KEY_FALLBACKS; the first seals, all of them verify.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from functools import cache

from django.conf import settings

from .conf import get_conf, on_conf_reset
from .envelope import Envelope
from .exceptions import BadSeal, ImproperlyConfiguredQueue, UnknownSealKey

_KEY_DOMAIN = b"django_tenant_queue.seal.key.1"
_KEY_ID_DOMAIN = b"django_tenant_queue.seal.key-id.1"
_MESSAGE_DOMAIN = b"django_tenant_queue.seal.message.1"


def seal(envelope: Envelope) -> tuple[str, str]:
    """(key id, MAC): 16 and 64 hex characters, made with the newest key."""
    key_id, key = next(iter(_keys().items()))
    return key_id, _mac(key, envelope)


def verify(envelope: Envelope, key_id: str | None, mac: str | None) -> None:
    """Raises BadSeal when the row is not what was sealed, UnknownSealKey when this process does not know the key (yet)."""
    if not key_id or not mac:
        raise BadSeal("the row has no seal")
    key = _keys().get(key_id)
    if key is None:
        raise UnknownSealKey(key_id)
    # Bytes, because compare_digest refuses text that is not ASCII; the whole length, so a shortened MAC does not match.
    if not hmac.compare_digest(mac.encode("utf-8", "surrogatepass"), _mac(key, envelope).encode()):
        raise BadSeal("the row is not what was sealed")


def enqueued_at_text(moment: datetime) -> str:
    """The one spelling of a time under the seal: ISO 8601, UTC, microseconds. Raises ValueError for a naive time."""
    if moment.tzinfo is None:
        raise ValueError("enqueued_at must be an aware datetime.")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _mac(key: bytes, envelope: Envelope) -> str:
    return hmac.digest(key, _message(envelope), "sha256").hex()


def _message(envelope: Envelope) -> bytes:
    fields = (
        str(envelope.job_id),
        envelope.tenant_id,
        envelope.actor_id,
        envelope.actor_type,
        envelope.correlation_id,
        envelope.task,
        envelope.payload,
        enqueued_at_text(envelope.enqueued_at),
    )
    return _MESSAGE_DOMAIN + b"".join(_framed(field) for field in fields)


def _framed(field: str | None) -> bytes:
    """Null is not the empty string, and no field can run into the next one."""
    if field is None:
        return b"\0"
    stored = field.encode("utf-8", "surrogatepass")
    return b"\1" + len(stored).to_bytes(8, "big") + stored


@on_conf_reset
def _forget_keys() -> None:
    _keys.cache_clear()


@cache
def _keys() -> dict[str, bytes]:
    """Key id -> key, newest first. A key is derived, so that it is no other use of SECRET_KEY and its id tells nothing about it."""
    secrets: tuple[str | bytes, ...] = get_conf().seal_keys or (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    keys: dict[str, bytes] = {}
    for secret in secrets:
        if not isinstance(secret, str | bytes) or not secret:
            raise ImproperlyConfiguredQueue("TENANT_QUEUE['SEAL_KEYS'] holds an empty key; each must be a non-empty random string.")
        raw = secret.encode() if isinstance(secret, str) else secret
        key = hmac.digest(raw, _KEY_DOMAIN, "sha256")
        keys.setdefault(hashlib.sha256(_KEY_ID_DOMAIN + key).hexdigest()[:16], key)
    return keys
