"""System checks: what is wrong with the settings, in sentences."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from django_tenant_queue.checks import check_settings

QUEUE_CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:6379/1"}
PLAIN_CACHE = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def problems(conf: dict[str, Any] | None = None, **caches: Any) -> dict[str, str]:
    """id -> message."""
    aliases = {"default": PLAIN_CACHE, "tenant_queue": QUEUE_CACHE, **caches}
    with override_settings(TENANT_QUEUE=conf or {}, CACHES={alias: cache for alias, cache in aliases.items() if cache}):
        return {str(message.id).partition(".")[2]: message.msg for message in check_settings()}


def factory() -> None: ...


not_callable = 5


def test_good_settings_have_no_problem() -> None:
    good = {"TENANT": f"{__name__}.factory", "ACTOR": f"{__name__}.factory", "LANE_KEY": "everyone", "DATABASE": "default"}
    assert problems() == {}
    assert problems(good) == {}


def test_settings_that_cannot_be_read_are_one_problem() -> None:
    assert "Did you mean 'TENANT'" in problems({"TENNANT": "x.y"})["E001"]


def test_an_unknown_database_is_named() -> None:
    assert "'ledger', which is not in DATABASES" in problems({"DATABASE": "ledger"})["E002"]


@pytest.mark.parametrize("name", ["TENANT", "ACTOR", "LANE_KEY", "CLIENT_FACTORY"])
def test_a_path_that_leads_nowhere_is_named(name: str) -> None:
    for path in ("shop.absent.tenant", f"{__name__}.absent", f"{__name__}.not_callable"):
        found = problems({name: path})["E003"]
        assert f"TENANT_QUEUE[{name!r}] is {path!r}" in found


def test_a_missing_cache_alias_is_named() -> None:
    assert "'tenant_queue', which is not in CACHES" in problems(tenant_queue=None)["E004"]
    assert "'other', which is not in CACHES" in problems({"REDIS_ALIAS": "other"})["E004"]


@pytest.mark.parametrize("backend", ["django.core.cache.backends.redis.RedisCache", PLAIN_CACHE["BACKEND"], "absent.Cache", ""])
def test_a_cache_that_gives_no_redis_client_is_named(backend: str) -> None:
    assert "django_redis.cache.RedisCache" in problems(tenant_queue={**QUEUE_CACHE, "BACKEND": backend})["E005"]


def test_a_shared_url_is_a_warning() -> None:
    assert "cache.clear()" in problems(default=QUEUE_CACHE)["W001"]
    assert "W001" in problems(default={**QUEUE_CACHE, "LOCATION": ["redis://127.0.0.1:6379/1", "redis://replica:6379/1"]})
    assert problems(default={**QUEUE_CACHE, "LOCATION": "redis://127.0.0.1:6379/2"}) == {}


def test_a_client_factory_needs_no_cache() -> None:
    assert problems({"CLIENT_FACTORY": f"{__name__}.factory"}, tenant_queue=None) == {}
