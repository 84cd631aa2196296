"""Who is asking: contexts in Python, and their settings in the database's transactions."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from django.db import DataError, ProgrammingError, connection, transaction

from django_tenant_queue import current_job, system_context, tenant_context, tenant_transaction
from django_tenant_queue.context.current import Origin, current_origin, use_job, use_origin
from django_tenant_queue.context.database import as_queue_role, job_transaction, only_in_tenant_transaction
from django_tenant_queue.envelope import RunningJob
from django_tenant_queue.exceptions import InvalidOption, InvalidTenant, NoTenantHere, OutsideJob, OutsideTenantTransaction, TenantMismatch

from .secured import execute, setting

postgres = pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only PostgreSQL has settings")
JOB = RunningJob(uuid.UUID(int=1), 1, 1, None, None, "system", "c-1", "shop.tasks.report", "default", datetime(2026, 1, 1, tzinfo=UTC), 1e9)
IN_A = Origin("A", "7", "user", "c-1", "00-trace")


def test_a_tenant_context_holds_and_ends() -> None:
    assert current_origin() is None
    with tenant_context("A", actor_id=7, actor_type="user"):
        here = current_origin()
        assert here is not None
        assert (here.tenant_id, here.actor_id, here.actor_type, here.system) == ("A", "7", "user", False)
        assert len(here.correlation_id) == 32
    assert current_origin() is None


def test_a_tenant_context_ends_with_an_exception() -> None:
    """I09."""
    with pytest.raises(ZeroDivisionError), tenant_context("A"):
        raise ZeroDivisionError
    assert current_origin() is None


def test_the_same_tenant_may_be_entered_again_and_keeps_the_correlation_id() -> None:
    with use_origin(IN_A), tenant_context("A", actor_id="8"):
        here = current_origin()
        assert here is not None
        assert (here.actor_id, here.correlation_id, here.trace) == ("8", "c-1", "00-trace")


def test_another_tenant_needs_system_context() -> None:
    with tenant_context("A"):
        with pytest.raises(TenantMismatch) as caught, tenant_context("B"):
            pytest.fail("entered")
        assert (caught.value.current, caught.value.asked) == ("A", "B")
        assert "system_context" in str(caught.value)
        with system_context(), tenant_context("B"):
            here = current_origin()
            assert here is not None
            assert here.tenant_id == "B"
            with pytest.raises(TenantMismatch), tenant_context("A"):
                pytest.fail("entered")


@pytest.mark.parametrize("tenant", [None, "", "*", 1.0, True])
def test_a_context_needs_a_tenant_id(tenant: object) -> None:
    with pytest.raises(InvalidTenant), tenant_context(tenant):  # type: ignore[arg-type]
        pytest.fail("entered")


@pytest.mark.parametrize(
    ("actor_id", "actor_type"), [("7", "robot"), ("", "user"), ("a\nb", "user"), (1.5, "user"), (True, "user"), ("x" * 256, "user")]
)
def test_a_context_needs_an_actor_that_can_be_stored(actor_id: object, actor_type: str) -> None:
    with pytest.raises(InvalidOption, match="actor_"), tenant_context("A", actor_id, actor_type):  # type: ignore[arg-type]
        pytest.fail("entered")


def test_there_is_a_current_job_only_while_one_runs() -> None:
    with pytest.raises(OutsideJob):
        current_job()
    with use_job(JOB):
        assert current_job() is JOB
    with pytest.raises(OutsideJob):
        current_job()


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    def test_a_tenant_transaction_needs_a_tenant(self) -> None:
        with pytest.raises(NoTenantHere), tenant_transaction():
            pytest.fail("entered")
        with use_origin(Origin(None, None, "user", "c-1")), pytest.raises(NoTenantHere), tenant_transaction():
            pytest.fail("entered")
        assert not connection.in_atomic_block
        with use_origin(Origin(None, None, "user", "c-1")), use_job(JOB), tenant_transaction():
            assert connection.in_atomic_block

    @postgres
    def test_the_settings_end_with_the_transaction(self) -> None:
        """I09: after COMMIT, after an exception, and after ROLLBACK."""
        with use_origin(IN_A):
            with tenant_transaction():
                assert (setting(), setting("app.current_actor_id")) == ("A", "7")
            assert (setting(), setting("app.current_actor_id")) == ("", "")
            with pytest.raises(ZeroDivisionError), tenant_transaction():
                raise ZeroDivisionError
            assert setting() == ""
            with tenant_transaction():
                transaction.set_rollback(True)
            assert setting() == ""

    @postgres
    def test_a_job_that_fails_between_the_setting_and_its_body_leaves_nothing(self) -> None:
        """I09: an interruption there, and the connection is used again."""
        with pytest.raises(KeyboardInterrupt), job_transaction("default", IN_A, "m"):
            raise KeyboardInterrupt
        assert (setting(), setting("dtq.boundary")) == ("", "")

    @postgres
    def test_a_savepoint_rolled_back_leaves_the_context_as_it_was(self) -> None:
        """I08: the setting was made before every savepoint."""
        with job_transaction("default", IN_A, "m") as boundary:
            for _ in range(3):
                with pytest.raises(ZeroDivisionError), transaction.atomic():
                    raise ZeroDivisionError
                with pytest.raises(ZeroDivisionError), use_origin(IN_A), tenant_transaction():
                    raise ZeroDivisionError
            assert setting() == "A"
            assert execute(f"SELECT 1 WHERE {boundary.condition}", boundary.params) == [(1,)]

    @postgres
    @pytest.mark.parametrize("fails", [False, True])
    def test_a_context_set_inside_a_transaction_is_put_back_whether_its_savepoint_lives_or_not(self, fails: bool) -> None:
        """I08: release would keep it, rollback would revert it."""
        with transaction.atomic():
            execute("SELECT set_config('app.current_actor_id', 'before', true)")
            try:
                with use_origin(IN_A), tenant_transaction():
                    assert (setting(), setting("app.current_actor_id")) == ("A", "7")
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert fails
            assert (setting(), setting("app.current_actor_id")) == ("", "before")

    @postgres
    def test_a_tenant_transaction_is_not_entered_inside_another_tenants(self) -> None:
        with job_transaction("default", IN_A, "m"), use_origin(Origin("B", None, "system", "c-1")):
            with pytest.raises(TenantMismatch), tenant_transaction():
                pytest.fail("entered")
            assert setting() == "A"

    def test_an_error_inside_a_tenant_transaction_rolls_back_and_reaches_the_caller(self) -> None:
        execute("CREATE TABLE context_effect (note text)")
        try:
            with pytest.raises(ProgrammingError), tenant_context("A"), tenant_transaction():
                execute("INSERT INTO context_effect VALUES ('x'); SELECT * FROM absent")
            assert execute("SELECT count(*) FROM context_effect") == [(0,)]
        finally:
            execute("DROP TABLE context_effect")

    @postgres
    def test_system_context_survives_a_failed_transaction(self) -> None:
        """The setting cannot be put back in a transaction that failed, and need not: it is reverted with it."""
        with job_transaction("default", IN_A, "m"):
            with pytest.raises(DataError, match="division"), transaction.atomic(), system_context():
                execute("SELECT 1/0")
            assert setting() == "A"


@postgres
@pytest.mark.django_db(transaction=True)
class TestGate:
    """Statements of a job outside tenant_transaction()."""

    def test_a_statement_in_autocommit_is_refused(self) -> None:
        """I05: no transaction, so nothing holds the tenant."""
        with use_origin(IN_A), only_in_tenant_transaction():
            with pytest.raises(OutsideTenantTransaction, match="tenant_transaction"):
                execute("SELECT 1")
            with pytest.raises(OutsideTenantTransaction), transaction.atomic():
                execute("SELECT 1")
            with tenant_transaction():
                assert setting() == "A"
            with pytest.raises(OutsideTenantTransaction):
                execute("SELECT 1")
        assert execute("SELECT 1") == [(1,)]

    def test_the_body_of_an_atomic_job_is_free_and_its_callbacks_are_not(self) -> None:
        """G20: a callback runs after COMMIT, where the settings have ended."""
        seen: list[str] = []

        def callback() -> None:
            with pytest.raises(OutsideTenantTransaction):
                execute("SELECT 1")
            with tenant_transaction():
                seen.append(setting())

        with use_origin(IN_A), use_job(JOB), only_in_tenant_transaction(), job_transaction("default", IN_A, "m"):
            transaction.on_commit(callback)
            with transaction.atomic():
                assert setting() == "A"
        assert seen == ["A"]

    def test_the_apps_own_statements_pass(self) -> None:
        """A nested enqueue outside tenant_transaction()."""
        with use_origin(IN_A), use_job(JOB), only_in_tenant_transaction():
            with as_queue_role("default"):
                assert setting() == ""
            with pytest.raises(OutsideTenantTransaction):
                execute("SELECT 1")

    def test_a_job_inside_a_transaction_of_the_caller_leaves_its_settings_alone(self) -> None:
        """Eager mode in a test: the job's transaction is a savepoint there."""
        with transaction.atomic():
            with use_origin(IN_A), use_job(JOB), only_in_tenant_transaction(), job_transaction("default", IN_A, "m"):
                assert (setting(), setting("dtq.boundary")) == ("A", "m")
            assert (setting(), setting("dtq.boundary")) == ("", "")


def test_on_other_databases_a_tenant_transaction_is_a_plain_one(tmp_path, django_db_blocker) -> None:  # type: ignore[no-untyped-def]
    """SQLite: migrations and eager mode work there."""
    from django.db import connections

    with django_db_blocker.unblock():
        plain = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}
        connections.settings["plain"] = {**connections["default"].settings_dict, **plain}
        try:
            other = connections["plain"]
            with use_origin(IN_A), use_job(JOB), only_in_tenant_transaction():
                with job_transaction("plain", IN_A, "m") as boundary, tenant_transaction("plain"), system_context():
                    assert execute(f"SELECT 1 WHERE {boundary.condition}", boundary.params, using=other) == [(1,)]
                with tenant_transaction("plain"):
                    assert other.in_atomic_block
            other.close()
        finally:
            del connections["plain"]
            del connections.settings["plain"]
