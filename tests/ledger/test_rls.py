"""One tenant's rows are not another's: raw SQL under the application's plain role."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection, transaction
from django.db.utils import ProgrammingError

from django_tenant_queue import system_context, tenant_context, tenant_transaction
from django_tenant_queue.context.current import Origin
from django_tenant_queue.context.database import job_transaction

from . import secured
from .secured import TABLE, execute, visible

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only PostgreSQL has row-level security"),
]
ROWS_OF = {"A": {"a1", "a2"}, "B": {"b1"}}


@pytest.fixture(autouse=True)
def table(transactional_db: None) -> Iterator[None]:
    secured.make_table()
    yield
    secured.drop_table()


def origin(tenant_id: str | None) -> Origin:
    return Origin(tenant_id, "7", "user", "c-1", system=tenant_id is None)


def test_the_suite_runs_as_a_plain_role_on_forced_tables() -> None:
    """I06: as superuser, with BYPASSRLS or without FORCE every other test here would prove nothing."""
    assert execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user") == [(False, False)]
    columns = "relrowsecurity, relforcerowsecurity, pg_get_userbyid(relowner) = current_user"
    assert execute(f"SELECT {columns} FROM pg_class WHERE relname = %s", (TABLE,)) == [(True, True, True)]


@pytest.mark.parametrize("tenant", ["A", "B"])
def test_a_tenant_sees_its_own_rows_only(tenant: str) -> None:
    with tenant_context(tenant), tenant_transaction():
        assert visible() == ROWS_OF[tenant]
    with job_transaction("default", origin(tenant), "marker"):
        assert visible() == ROWS_OF[tenant]
        assert execute(f"UPDATE {TABLE} SET note = note || '!' RETURNING tenant_id")[0] == (tenant,)


def test_a_tenant_cannot_write_another_tenants_row() -> None:
    with tenant_context("A"), pytest.raises(ProgrammingError, match="row-level security"), tenant_transaction():
        execute(f"INSERT INTO {TABLE} VALUES ('B', 'b2')")
    with tenant_context("A"), tenant_transaction():
        assert execute(f"DELETE FROM {TABLE} WHERE tenant_id = 'B' RETURNING note") == []
    with tenant_context("B"), tenant_transaction():
        assert visible() == ROWS_OF["B"]


@pytest.mark.parametrize("odd", ["' OR 1=1--", "A' --", "%", "{A}", "a\nb", "\U0001f600", "A\\"])
def test_an_odd_tenant_id_is_only_a_value(odd: str) -> None:
    """I01: the setting is a parameter, never a part of the SQL."""
    with tenant_context(odd), tenant_transaction():
        assert visible() == set()
        execute(f"INSERT INTO {TABLE} VALUES (%s, 'odd')", (odd,))
        assert visible() == {"odd"}
        assert secured.setting() == odd


def test_without_a_tenant_nothing_is_seen() -> None:
    """I07: in autocommit, in a plain transaction, in system_context and in a job without a tenant."""
    assert visible() == set()
    with transaction.atomic():
        assert visible() == set()
    with system_context(), tenant_transaction():
        assert visible() == set()
    with job_transaction("default", origin(None), "marker"):
        assert visible() == set()


def test_system_context_hides_the_rows_of_the_tenant_whose_transaction_it_is_in() -> None:
    """I07: and the tenant is back after it."""
    with job_transaction("default", origin("A"), "marker") as boundary:
        with system_context():
            assert visible() == set()
            with tenant_context("B"):
                assert visible() == set()
                with tenant_transaction():
                    assert visible() == ROWS_OF["B"]
                assert visible() == set()
        assert visible() == ROWS_OF["A"]
        assert execute(f"SELECT 1 WHERE {boundary.condition}", boundary.params) == [(1,)]


def test_two_tenants_alternate_on_one_connection() -> None:
    """I05, G19: 2,000 transactions, each sees its own rows; after each the setting reads ''."""
    backend = execute("SELECT pg_backend_pid()")
    for turn in range(2000):
        tenant = "AB"[turn % 2]
        with job_transaction("default", origin(tenant), f"{turn}.1"):
            assert execute(f"SELECT DISTINCT tenant_id, current_setting('app.current_tenant_id') FROM {TABLE}") == [(tenant, tenant)]
        if turn % 100 == 0:
            assert visible() == set()
            assert secured.setting() == ""
    assert execute("SELECT pg_backend_pid()") == backend


def test_the_setting_left_empty_by_the_last_transaction_never_reaches_a_cast() -> None:
    """I05: with an integer tenant column '' would be an error; the policy's nullif makes it no row."""
    execute(f"ALTER TABLE {TABLE} ADD COLUMN owner bigint NOT NULL DEFAULT 5")
    execute(f"DROP POLICY tenant ON {TABLE}")
    execute(f"CREATE POLICY tenant ON {TABLE} USING (owner = nullif((SELECT current_setting('app.current_tenant_id', true)), '')::bigint)")
    with tenant_context(5), tenant_transaction():
        assert visible() == {"a1", "a2", "b1"}
    assert secured.setting() == ""
    assert visible() == set()


def test_a_plan_prepared_for_one_tenant_gives_the_other_its_own_rows() -> None:
    """I05, I15: the generic plan reads the setting at execution."""
    execute(f"PREPARE rows_here AS SELECT note FROM {TABLE}")
    try:
        for turn in range(20):
            tenant = "AB"[turn % 2]
            with tenant_context(tenant), tenant_transaction():
                assert {note for (note,) in execute("EXECUTE rows_here")} == ROWS_OF[tenant]
    finally:
        execute("DEALLOCATE rows_here")


def test_without_force_the_owner_sees_every_row() -> None:
    """I06: the isolation tests fail when FORCE is removed; this shows that they would."""
    execute(f"ALTER TABLE {TABLE} NO FORCE ROW LEVEL SECURITY")
    with tenant_context("A"), tenant_transaction():
        assert visible() == ROWS_OF["A"] | ROWS_OF["B"]


@pytest.mark.skipif(secured.admin_url() is None, reason="ADMIN_DATABASE_URL is not set, so there is no superuser to try")
def test_a_superuser_sees_every_row_whatever_the_setting() -> None:
    """I06: the isolation tests fail when the role is superuser; this shows that they would."""
    with secured.as_other_role(str(secured.admin_url())) as other:
        execute("SELECT set_config('app.current_tenant_id', 'A', false)", using=other)
        assert execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user", using=other) == [(True,)]
        assert visible(other) == ROWS_OF["A"] | ROWS_OF["B"]


def test_a_thread_of_the_task_has_no_tenant() -> None:
    """G13, I07: its connection is another one."""
    from concurrent.futures import ThreadPoolExecutor

    def look() -> set[str]:
        try:
            return visible()
        finally:
            connection.close()

    with job_transaction("default", origin("A"), "marker"), ThreadPoolExecutor(1) as pool:
        execute("SELECT 1")
        assert pool.submit(look).result(timeout=10) == set()
