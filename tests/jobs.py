"""Tasks of the tests, registered under their own names."""

from __future__ import annotations

from django.db import connection

from django_tenant_queue import current_job, task
from django_tenant_queue.exceptions import Cancel
from sampleproject.shop.effects import record_effect


@task
def leave_effect(fail_until_fence: int = 0, cancel: bool = False) -> None:
    """Write this run's effect row; runs with a fence up to `fail_until_fence` fail after they wrote it."""
    record_effect()
    if cancel:
        raise Cancel("asked for by its payload")
    if current_job().fence <= fail_until_fence:
        raise RuntimeError("fails by its payload")


@task(max_retries=0)
def never_succeed() -> None:
    """Write an effect row that must not be seen, and fail; its first failure is its last."""
    record_effect()
    raise RuntimeError("always fails")


@task
def break_out() -> None:
    """End the transaction by hand: what it wrote could be committed, so it must not run again."""
    with connection.cursor() as cursor:
        cursor.execute("COMMIT")
