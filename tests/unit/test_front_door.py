"""The package's front door: the public names, and an import that costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import django_tenant_queue

PUBLIC = {"task", "enqueue", "enqueue_many", "current_job", "tenant_context", "system_context", "tenant_transaction", "Retry", "Cancel"}


def test_the_public_names_are_there_and_nothing_else() -> None:
    assert set(django_tenant_queue.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(django_tenant_queue, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'enqeue'"):
        django_tenant_queue.enqeue  # noqa: B018


def test_enqueue_is_the_function_whatever_was_imported_before() -> None:
    """A submodule of the same name would replace it."""
    import django_tenant_queue.enqueueing
    import django_tenant_queue.registry

    assert callable(django_tenant_queue.enqueue)
    assert callable(django_tenant_queue.task)


def test_the_package_imports_without_django_and_without_stores() -> None:
    """The worker supervisor lives as long as the host: it must stay small."""
    heavy = ("django", "redis", "django_redis", "psycopg")
    code = f"import sys, django_tenant_queue; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_every_error_is_one_tree() -> None:
    from django_tenant_queue import exceptions

    errors = [value for value in vars(exceptions).values() if isinstance(value, type) and issubclass(value, BaseException)]
    assert len(errors) > 15
    assert all(issubclass(error, exceptions.TenantQueueError) for error in errors)


def test_invalid_input_is_also_a_value_error_and_a_type_error() -> None:
    from django_tenant_queue.exceptions import InvalidPayload, InvalidTenant

    for error in (InvalidPayload, InvalidTenant):
        assert issubclass(error, ValueError)
        assert issubclass(error, TypeError)
