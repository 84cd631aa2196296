"""The configured broker of this process."""

from __future__ import annotations

from typing import Literal, cast

from ..conf import Conf, get_conf, on_conf_reset
from .base import Broker, SchedulerSettings
from .redis.broker import RedisBroker
from .redis.clients import REQUEST, WORKER, connect
from .redis.keys import Keys
from .redis.store import RedisStore

_built: dict[bool, Broker] = {}  # patient ->


def get_broker(*, patient: bool = False) -> Broker:
    """The broker of the configuration, built once per process and again when TENANT_QUEUE changes. Connects at its first verb.

    `patient`: each call may take 4 s instead of 2 s, as suits a worker's loops, where nobody waits for a page. After a fork the child's
    broker makes connections of its own. Raises BrokerMisconfigured at the first verb when the cache alias is not usable."""
    broker = _built.get(patient)
    if broker is None:  # two threads may both build one: the one that is dropped has not connected yet
        broker = _built.setdefault(patient, _build(get_conf(), patient))
    return broker


def _build(conf: Conf, patient: bool) -> Broker:
    patience, keys = WORKER if patient else REQUEST, Keys(conf.namespace)
    store = RedisStore(lambda: connect(conf.redis_alias, conf.client_factory, patience), keys.meta, patience=patience)
    return RedisBroker(scheduler_settings(conf), store, keys)


def scheduler_settings(conf: Conf) -> SchedulerSettings:
    """What of the configuration the scheduler must know."""
    return SchedulerSettings(
        mode=cast("Literal['time', 'jobs']", conf.fairness),
        quantum=conf.quantum_units,
        queues=conf.queue_names,
        lease_us=round(conf.lease_seconds * 1_000_000),
    )


@on_conf_reset
def _forget() -> None:
    while _built:
        _built.popitem()[1].close()
