"""The roles of the database: the one bodies are switched to, and those that row-level security does not bind."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import psycopg
import pytest
from django.db import Error, connection, transaction
from django.test import override_settings
from psycopg import sql

from django_tenant_queue import tenant_transaction
from django_tenant_queue.context.current import Origin, use_job, use_origin
from django_tenant_queue.context.database import as_queue_role, job_transaction, leave_role
from django_tenant_queue.context.role import database_role_problem, owner_without_force
from django_tenant_queue.envelope import RunningJob

from . import secured
from .secured import TABLE, execute, setting, visible

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only PostgreSQL has row-level security"),
]
needs_admin = pytest.mark.skipif(secured.admin_url() is None, reason="ADMIN_DATABASE_URL is not set, so no role can be made")
ORIGIN = Origin("A", "7", "user", "c-1")
JOB = RunningJob(uuid.UUID(int=1), 1, 1, "A", "7", "user", "c-1", "shop.tasks.report", "default", datetime(2026, 1, 1, tzinfo=UTC), 1e9)


@pytest.fixture(autouse=True)
def table(transactional_db: None) -> Iterator[None]:
    secured.make_table()
    yield
    secured.drop_table()


def make_role(options: str) -> tuple[str, str]:
    """(name, password) of a role that the application's role is a member of and that may read and write the table."""
    name, password = f"dtq_test_{secrets.token_hex(4)}", secrets.token_hex(8)
    with psycopg.connect(str(secured.admin_url()), autocommit=True) as admin:
        made = sql.SQL(f"CREATE ROLE {{}} LOGIN PASSWORD {{}} {options}")
        admin.execute(made.format(sql.Identifier(name), sql.Literal(password)))
        admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(name), sql.Identifier(connection.settings_dict["USER"])))
    execute(f"GRANT USAGE ON SCHEMA public TO {name}")
    execute(f"GRANT SELECT, INSERT ON {TABLE} TO {name}")
    return name, password


def drop_role(name: str) -> None:
    execute(f"REVOKE ALL ON {TABLE} FROM {name}")
    execute(f"REVOKE ALL ON SCHEMA public FROM {name}")
    with psycopg.connect(str(secured.admin_url()), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def task_role(table: None, settings) -> Iterator[str]:  # type: ignore[no-untyped-def]
    """A plain role, configured as TASK_ROLE."""
    name, _ = make_role("NOSUPERUSER NOBYPASSRLS")
    settings.TENANT_QUEUE = {**settings.TENANT_QUEUE, "TASK_ROLE": name}
    yield name
    drop_role(name)


def role() -> str:
    return execute("SELECT current_user::text")[0][0]


@needs_admin
class TestTaskRole:
    def test_a_body_runs_as_the_task_role_and_settle_as_the_role_before(self, task_role: str) -> None:
        before = role()
        with job_transaction("default", ORIGIN, "m") as boundary:
            assert (role(), setting(), visible()) == (task_role, "A", {"a1", "a2"})
            with pytest.raises(Error, match="permission denied"), transaction.atomic():
                execute(f"DELETE FROM {TABLE}")
            leave_role(connection)
            assert role() == before
            assert execute(f"SELECT 1 WHERE {boundary.condition}", boundary.params) == [(1,)]
        assert role() == before

    def test_a_role_that_the_connection_assumed_is_the_one_that_comes_back(self, task_role: str) -> None:
        """Django's assume_role: the role before the job is not the one that logged in."""
        assumed, _ = make_role("")
        try:
            execute(f"SET ROLE {assumed}")
            with job_transaction("default", ORIGIN, "m"):
                assert role() == task_role
                leave_role(connection)
                assert role() == assumed
            assert role() == assumed
        finally:
            execute("RESET ROLE")
            drop_role(assumed)

    @pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
    def test_the_switch_ends_with_the_transaction_however_it_ends(self, task_role: str, end: str) -> None:
        """I09, G09."""
        before = role()
        with suppress(ZeroDivisionError), job_transaction("default", ORIGIN, "m"):
            execute(end)
            assert role() == before
            leave_role(connection)
            assert role() == before
            raise ZeroDivisionError
        assert (role(), setting()) == (before, "")

    def test_a_failed_body_leaves_no_role(self, task_role: str) -> None:
        """I09."""
        before = role()
        with pytest.raises(ZeroDivisionError), job_transaction("default", ORIGIN, "m"):
            raise ZeroDivisionError
        assert role() == before

    def test_the_apps_own_statements_run_as_the_role_before_the_switch(self, task_role: str) -> None:
        """A nested enqueue, in a savepoint of its own."""
        before = role()
        with use_origin(ORIGIN), use_job(JOB), job_transaction("default", ORIGIN, "m"):
            with as_queue_role("default"):
                assert role() == before
            assert role() == task_role
            with pytest.raises(ZeroDivisionError), as_queue_role("default"):
                raise ZeroDivisionError
            assert role() == task_role

    def test_tenant_transaction_of_a_job_switches_too_and_that_of_a_request_does_not(self, task_role: str) -> None:
        before = role()
        with use_origin(ORIGIN):
            with use_job(JOB), tenant_transaction():
                assert role() == task_role
                with tenant_transaction():
                    assert role() == task_role
            with tenant_transaction():
                assert role() == before
        assert role() == before

    def test_the_task_role_is_the_one_that_is_checked(self, task_role: str) -> None:
        """I06."""
        assert database_role_problem(connection) is None
        assert owner_without_force(connection) is None


def test_a_plain_role_may_start_workers() -> None:
    """I06."""
    assert database_role_problem(connection) is None
    assert owner_without_force(connection) is None


def test_an_owner_without_force_is_warned() -> None:
    """I06."""
    execute(f"ALTER TABLE {TABLE} NO FORCE ROW LEVEL SECURITY")
    warning = owner_without_force(connection)
    assert warning is not None
    assert f"public.{TABLE}" in warning
    assert "FORCE ROW LEVEL SECURITY" in warning
    assert database_role_problem(connection) is None


def test_a_task_role_that_does_not_exist_is_a_problem(settings) -> None:  # type: ignore[no-untyped-def]
    with override_settings(TENANT_QUEUE={**settings.TENANT_QUEUE, "TASK_ROLE": "nobody_here"}):
        assert "no such role" in str(database_role_problem(connection))
    with override_settings(TENANT_QUEUE={**settings.TENANT_QUEUE, "TASK_ROLE": "pg_read_all_data"}):
        assert "may not become" in str(database_role_problem(connection))


@needs_admin
def test_a_superuser_may_not_start_workers_where_a_table_is_secured(settings) -> None:  # type: ignore[no-untyped-def]
    """I06: unless ALLOW_RLS_BYPASS says so, or nothing is secured."""
    with secured.as_other_role(str(secured.admin_url())) as other:
        problem = database_role_problem(other)
        assert problem is not None
        assert "a superuser" in problem
        assert "ALLOW_RLS_BYPASS" in problem
        with override_settings(TENANT_QUEUE={**settings.TENANT_QUEUE, "ALLOW_RLS_BYPASS": True}):
            assert database_role_problem(other) is None
    with secured.as_other_role(str(secured.admin_url()), database="postgres") as elsewhere:
        assert execute("SELECT count(*) FROM pg_class WHERE relrowsecurity", using=elsewhere) == [(0,)]
        assert database_role_problem(elsewhere) is None


@needs_admin
def test_bypassrls_sees_every_row_and_may_not_start_workers() -> None:
    """I06: the isolation tests fail with such a role; this shows that they would."""
    name, password = make_role("BYPASSRLS")
    try:
        with secured.as_other_role(name, password) as other:
            execute("SELECT set_config('app.current_tenant_id', 'A', false)", using=other)
            assert visible(other) == {"a1", "a2", "b1"}
            assert "BYPASSRLS" in str(database_role_problem(other))
    finally:
        drop_role(name)
