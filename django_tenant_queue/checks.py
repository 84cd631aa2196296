"""System checks: what can be known to be wrong from the settings alone. Roles and servers are looked at when workers start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from .conf import Conf, get_conf
from .exceptions import ImproperlyConfiguredQueue

RESOLVERS = ("tenant", "actor", "lane_key", "client_factory")


@register
def check_settings(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Every problem with TENANT_QUEUE, each as a sentence."""
    try:
        conf = get_conf()
    except ImproperlyConfiguredQueue as error:
        return [Error(str(error), id="django_tenant_queue.E001")]
    return [*_database(conf), *_dotted_paths(conf), *_cache(conf)]


def _database(conf: Conf) -> Iterator[CheckMessage]:
    if conf.database not in settings.DATABASES:
        known = ", ".join(settings.DATABASES)
        yield Error(f"TENANT_QUEUE['DATABASE'] is {conf.database!r}, which is not in DATABASES ({known}).", id="django_tenant_queue.E002")


def _dotted_paths(conf: Conf) -> Iterator[CheckMessage]:
    for name in RESOLVERS:
        value = getattr(conf, name)
        if value is None or (name == "lane_key" and isinstance(value, str) and "." not in value):
            continue  # a LANE_KEY without a dot is a constant
        try:
            found = import_string(value) if isinstance(value, str) else value
        except ImportError as error:
            yield Error(f"TENANT_QUEUE[{name.upper()!r}] is {value!r}, which cannot be imported: {error}", id="django_tenant_queue.E003")
        else:
            if not callable(found):
                yield Error(f"TENANT_QUEUE[{name.upper()!r}] is {value!r}, which is not callable.", id="django_tenant_queue.E003")


def _cache(conf: Conf) -> Iterator[CheckMessage]:
    if conf.client_factory is not None:
        return
    mine = settings.CACHES.get(conf.redis_alias)
    if mine is None:
        yield Error(
            f"TENANT_QUEUE['REDIS_ALIAS'] is {conf.redis_alias!r}, which is not in CACHES.",
            hint="Add a django_redis cache under that alias, with a database number of its own.",
            id="django_tenant_queue.E004",
        )
        return
    if not _is_django_redis(mine.get("BACKEND", "")):
        yield Error(
            f"CACHES[{conf.redis_alias!r}] uses {mine.get('BACKEND')!r}, which gives no Redis client: use 'django_redis.cache.RedisCache'.",
            id="django_tenant_queue.E005",
        )
    for alias, other in settings.CACHES.items():
        if alias != conf.redis_alias and _locations(mine) & _locations(other):
            yield Warning(
                f"CACHES[{alias!r}] has the same LOCATION as CACHES[{conf.redis_alias!r}]: cache.clear() there deletes the schedule, "
                "and both share one connection pool with the first one's options.",
                hint="Give the queue a database number of its own.",
                id="django_tenant_queue.W001",
            )


def _is_django_redis(dotted: str) -> bool:
    """By the names of the base classes: this app imports django_redis only in brokers/redis."""
    try:
        return any(base.__module__.partition(".")[0] == "django_redis" for base in import_string(dotted).__mro__)
    except (ImportError, AttributeError):
        return False


def _locations(cache: dict[str, Any]) -> set[str]:
    location = cache.get("LOCATION") or ()
    return set(location.split(",") if isinstance(location, str) else location)
