"""A body that leaves its transaction or its tenant is found out at settle, and its connection does not serve the next job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_tenant_queue.context.current import Origin
from django_tenant_queue.context.database import Boundary, broken_boundary, job_transaction, only_in_tenant_transaction, still_inside
from django_tenant_queue.context.session import ConnectionState, reset_after_job, state_of
from django_tenant_queue.exceptions import TransactionBoundaryBroken

from .secured import execute, setting

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="only PostgreSQL has settings"),
]
ORIGIN = Origin("A", "7", "user", "c-1")
MARKER = "0195f000-0000-7000-8000-000000000001.3"


def holds(boundary: Boundary) -> bool:
    """What settle's WHERE says."""
    return execute(f"SELECT 1 WHERE {boundary.condition}", boundary.params) == [(1,)]


def broken_by(body: Callable[[], object]) -> str:
    """Run a body as a job would, and say how its boundary was found broken."""
    sentence = ""
    with suppress(TransactionBoundaryBroken), only_in_tenant_transaction(), job_transaction("default", ORIGIN, MARKER) as boundary:
        try:
            body()
            still_inside(connections["default"], boundary)
            assert not holds(boundary)
            sentence = broken_boundary(connections["default"], boundary) or ""
            raise TransactionBoundaryBroken(sentence)
        except TransactionBoundaryBroken as error:
            sentence = str(error)
            raise
    return sentence


def raw() -> object:
    return connections["default"].connection


def test_a_body_that_stays_inside_holds() -> None:
    with job_transaction("default", ORIGIN, MARKER) as boundary:
        with transaction.atomic():
            execute("SELECT 1")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            raise ZeroDivisionError
        still_inside(connection, boundary)
        assert holds(boundary)
        assert broken_boundary(connection, boundary) is None


ENDINGS: dict[str, Callable[[], object]] = {
    "COMMIT": lambda: execute("COMMIT"),
    "ROLLBACK": lambda: execute("ROLLBACK"),
    "COMMIT AND CHAIN": lambda: execute("COMMIT AND CHAIN"),
    "driver's commit": lambda: raw().commit(),  # type: ignore[attr-defined]
    "driver's rollback": lambda: raw().rollback(),  # type: ignore[attr-defined]
    "commit and begin": lambda: (execute("COMMIT"), execute("BEGIN")),
}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_body_that_ends_its_transaction_is_found_out(ending: Callable[[], object]) -> None:
    """G09: the marker went with the transaction."""
    assert "committed or rolled back its own transaction" in broken_by(ending)


def test_a_body_that_marks_a_new_transaction_with_another_attempt_is_found_out() -> None:
    """G09: the marker names job and fence."""
    assert "committed or rolled back" in broken_by(lambda: execute("SELECT set_config('dtq.boundary', %s, true)", (MARKER + "0",)))


@pytest.mark.parametrize("tenant", ["B", ""])
def test_a_body_that_changes_the_tenant_is_found_out(tenant: str) -> None:
    """G12: row-level security alone allows it."""
    change = "SELECT set_config('app.current_tenant_id', %s, true)"
    assert "changed the tenant setting app.current_tenant_id" in broken_by(lambda: execute(change, (tenant,)))


def test_a_body_that_leaves_atomic_open_is_found_out_and_nothing_of_it_is_committed() -> None:
    """G09: Django closes the block that was left open in place of the job's, and never commits."""
    execute("CREATE TABLE left_open (note text)")

    def body() -> None:
        transaction.atomic().__enter__()
        execute("INSERT INTO left_open VALUES ('x')")

    try:
        assert "left an atomic() block open" in broken_by(body)
        assert connection.in_atomic_block
        assert reset_after_job(connections["default"])
        assert not connections["default"].in_atomic_block
        assert execute("SELECT * FROM left_open") == []
    finally:
        execute("DROP TABLE left_open")


def test_a_body_that_closes_its_connection_is_found_out() -> None:
    """G09, G13."""
    assert "closed the connection" in broken_by(lambda: connections["default"].close())
    assert execute("SELECT 1") == [(1,)]


@pytest.mark.parametrize("forbidden", [lambda: connection.set_autocommit(False), transaction.commit, transaction.rollback])
def test_djangos_own_verbs_are_refused_in_the_block(forbidden: Callable[[], object]) -> None:
    """G09: Django raises, so the body fails and is rolled back as any other."""
    with pytest.raises(transaction.TransactionManagementError), job_transaction("default", ORIGIN, MARKER):
        forbidden()
    assert setting() == ""


# -- the connection after the job


def test_a_clean_connection_is_kept_without_a_query() -> None:
    execute("SELECT 1")
    before = connections["default"]
    with CaptureQueriesContext(before) as queries:
        assert reset_after_job(before) is False
    assert (len(queries), connections["default"]) == (0, before)


def _left_atomic_open() -> None:
    transaction.atomic().__enter__()


def _left_two_open_after_an_error() -> None:
    transaction.atomic().__enter__()
    transaction.atomic().__enter__()
    with suppress(Exception):
        execute("SELECT 1/0")


def _switched_autocommit() -> None:
    connection.set_autocommit(False)
    execute("SELECT 1")


def _raw_begin() -> None:
    execute("BEGIN")


def _closed_in_atomic() -> None:
    transaction.atomic().__enter__()
    connection.close()


def _terminated() -> None:
    with suppress(Exception):
        execute("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize(
    "leave", [_left_atomic_open, _left_two_open_after_an_error, _switched_autocommit, _raw_begin, _closed_in_atomic, _terminated]
)
def test_a_connection_left_dirty_is_thrown_away(leave: Callable[[], None]) -> None:
    """G09: nothing of the old session is left, and the next use connects anew."""
    execute("SELECT 1")
    old = raw()
    leave()
    assert reset_after_job(connections["default"]) is True
    assert old.closed  # type: ignore[attr-defined]
    fresh = connections["default"]
    assert (fresh.in_atomic_block, fresh.savepoint_ids, fresh.needs_rollback) == (False, [], False)
    assert execute("SELECT 1") == [(1,)]
    assert fresh.connection is not old
    assert reset_after_job(fresh) is False


def test_callbacks_of_a_block_left_open_are_never_run() -> None:
    """G09."""
    ran: list[int] = []
    transaction.atomic().__enter__()
    transaction.on_commit(lambda: ran.append(1))
    assert reset_after_job(connections["default"])
    with transaction.atomic():
        execute("SELECT 1")
    assert ran == []


def test_a_callers_transaction_is_left_alone() -> None:
    """Eager mode in a test: inside an atomic block of the caller the connection stays."""
    with transaction.atomic(), transaction.atomic():
        before = state_of(connection)
        assert before == ConnectionState(in_atomic_block=True, savepoints=1)
        with job_transaction("default", ORIGIN, MARKER):
            execute("SELECT 1")
        assert reset_after_job(connections["default"], before) is False
        assert execute("SELECT 1") == [(1,)]
