"""The only reader of settings: `TENANT_QUEUE` as one frozen, typed value. Units are in the names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .exceptions import ImproperlyConfiguredQueue

FAIRNESS_MODES = ("time", "jobs")


@dataclass(frozen=True, slots=True)
class QueueConf:
    """One class of work. `max_share` of a process's slots is the most it may hold."""

    name: str
    max_share: float = 1.0


DEFAULT_QUEUES: Mapping[str, Mapping[str, Any]] = MappingProxyType({"interactive": {}, "default": {}, "bulk": {"max_share": 0.50}})


@dataclass(frozen=True, slots=True)
class Conf:
    """`TENANT_QUEUE`, checked. Every field is the setting of the same name in upper case."""

    redis_alias: str = "tenant_queue"
    tenant: str | None = None
    actor: str | None = None
    namespace: str = "default"
    database: str = "default"
    fairness: str = "time"
    quantum: float | None = None
    queues: Mapping[str, QueueConf] | None = None  # always set by `read`
    lane_key: Any = None
    task_role: str | None = None
    tenant_setting: str = "app.current_tenant_id"
    actor_setting: str = "app.current_actor_id"
    seal_keys: tuple[str, ...] = ()
    client_factory: str | None = None
    allow_rls_bypass: bool = False
    lease_seconds: float = 8
    renew_seconds: float = 2
    sweep_seconds: float = 1
    relay_seconds: float = 0.25
    reconcile_seconds: float = 60
    max_retries: int = 5
    backoff_cap_seconds: float = 3600
    max_crashes: int = 3
    timeout_seconds: float = 300
    grace_seconds: float = 30
    payload_max_bytes: int = 65_536
    payload_max_depth: int = 64
    result_max_bytes: int = 65_536
    unknown_task_seconds: float = 3600
    infrastructure_retries: int = 100

    @property
    def quantum_units(self) -> int:
        """The quantum in the scheduler's units: microseconds ("time") or thousandths of cost ("jobs")."""
        if self.fairness == "time":
            return round((0.1 if self.quantum is None else self.quantum) * 1_000_000)
        return round((5 if self.quantum is None else self.quantum) * 1000)

    @property
    def queue_names(self) -> tuple[str, ...]:
        """Queues in strict order, as configured."""
        return tuple(self.queues or ())

    def lane_key_of(self, envelope: Any) -> str:
        """The lane key of a job: the tenant id, or what LANE_KEY makes of the envelope. Jobs without a tenant share the lane ""."""
        if self.lane_key is None:
            return envelope.tenant_id or ""
        if isinstance(self.lane_key, str) and "." not in self.lane_key:
            return self.lane_key
        resolved = import_string(self.lane_key) if isinstance(self.lane_key, str) else self.lane_key
        return str(resolved(envelope))


_POSITIVE = [
    "lease_seconds",
    "renew_seconds",
    "sweep_seconds",
    "relay_seconds",
    "reconcile_seconds",
    "backoff_cap_seconds",
    "timeout_seconds",
    "payload_max_bytes",
    "payload_max_depth",
    "result_max_bytes",
    "unknown_task_seconds",
    "max_crashes",
]
_NOT_NEGATIVE = ["max_retries", "grace_seconds", "infrastructure_retries"]


def read(raw: Mapping[str, Any]) -> Conf:
    """Check `raw` and make a Conf of it. Raises ImproperlyConfiguredQueue with a sentence that names the key."""
    known = {field.name.upper(): field.name for field in fields(Conf)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in known:
            close = difflib.get_close_matches(str(key).upper(), known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known keys: {', '.join(sorted(known))}."
            raise ImproperlyConfiguredQueue(f"TENANT_QUEUE has an unknown key {key!r}.{hint}")
        values[known[key]] = value
    values["queues"] = _queues(values.get("queues", DEFAULT_QUEUES))
    keys = values.get("seal_keys", ())
    if isinstance(keys, str):
        raise ImproperlyConfiguredQueue("TENANT_QUEUE['SEAL_KEYS'] must be a list of strings, newest first; it is one string.")
    values["seal_keys"] = tuple(keys)
    conf = Conf(**values)
    _check(conf)
    return conf


def _queues(raw: Any) -> Mapping[str, QueueConf]:
    if not isinstance(raw, Mapping) or not raw:
        raise ImproperlyConfiguredQueue("TENANT_QUEUE['QUEUES'] must be a non-empty dict of queue name -> options.")
    queues = {}
    for name, options in raw.items():
        if not isinstance(name, str) or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 64:
            raise ImproperlyConfiguredQueue(
                f"TENANT_QUEUE['QUEUES']: {name!r} is not a queue name; use up to 64 ASCII letters, digits, - and _."
            )
        unknown = set(options or {}) - {"max_share"}
        if unknown:
            raise ImproperlyConfiguredQueue(
                f"TENANT_QUEUE['QUEUES'][{name!r}] has an unknown option {sorted(unknown)[0]!r}; known: 'max_share'."
            )
        share = (options or {}).get("max_share", 1.0)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ImproperlyConfiguredQueue(
                f"TENANT_QUEUE['QUEUES'][{name!r}]['max_share'] is {share!r}; it must be above 0 and at most 1."
            )
        queues[name] = QueueConf(name, float(share))
    return MappingProxyType(queues)


def _check(conf: Conf) -> None:
    if conf.fairness not in FAIRNESS_MODES:
        raise ImproperlyConfiguredQueue(f"TENANT_QUEUE['FAIRNESS'] is {conf.fairness!r}; it must be 'time' or 'jobs'.")
    for name in (*_POSITIVE, *_NOT_NEGATIVE):
        value = getattr(conf, name)
        number = not isinstance(value, bool) and isinstance(value, int | float)
        if not number or not 0 <= value < float("inf") or (name in _POSITIVE and value == 0):
            least = "above 0" if name in _POSITIVE else "0 or more"
            raise ImproperlyConfiguredQueue(f"TENANT_QUEUE[{name.upper()!r}] is {value!r}; it must be a finite number, {least}.")
    if conf.quantum is not None and (
        isinstance(conf.quantum, bool) or not isinstance(conf.quantum, int | float) or not 0 < conf.quantum < 1e6
    ):
        raise ImproperlyConfiguredQueue(
            f"TENANT_QUEUE['QUANTUM'] is {conf.quantum!r}; it must be above 0 (slot-seconds for 'time', jobs for 'jobs')."
        )
    if conf.lease_seconds < 3 * conf.renew_seconds:
        raise ImproperlyConfiguredQueue(
            f"TENANT_QUEUE['LEASE_SECONDS'] is {conf.lease_seconds}; it must be at least 3 x RENEW_SECONDS ({conf.renew_seconds}), "
            "or one slow renewal loses a lease."
        )
    if not isinstance(conf.namespace, str) or not conf.namespace or len(conf.namespace) > 64 or set(conf.namespace) & set("{}: \n\t\r\0"):
        raise ImproperlyConfiguredQueue(
            f"TENANT_QUEUE['NAMESPACE'] is {conf.namespace!r}; use 1 to 64 characters without braces, colons or spaces."
        )
    for name in ("tenant_setting", "actor_setting"):
        value = getattr(conf, name)
        if not isinstance(value, str) or value.count(".") != 1 or not value.replace(".", "").replace("_", "").isalnum():
            raise ImproperlyConfiguredQueue(
                f"TENANT_QUEUE[{name.upper()!r}] is {value!r}; a custom Postgres setting looks like 'app.current_tenant_id'."
            )


@cache
def get_conf() -> Conf:
    """The current configuration. Read once; `override_settings(TENANT_QUEUE=...)` makes it be read again."""
    return read(getattr(settings, "TENANT_QUEUE", {}))


_on_reset: list[Callable[[], None]] = []


def on_conf_reset(callback: Callable[[], None]) -> Callable[[], None]:
    """Register what else must be forgotten when TENANT_QUEUE changes (cached brokers, seal keys)."""
    _on_reset.append(callback)
    return callback


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("TENANT_QUEUE", "CACHES", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASES"):
        get_conf.cache_clear()
        for callback in _on_reset:
            callback()


setting_changed.connect(_reset)
