"""What holds the tenant in the database: settings that live as long as one transaction, and how we know that they still do.

Nothing here is session state (PgBouncer in transaction mode): `set_config(name, value, true)` ends with its transaction,
whatever ends it. The order inside a job's transaction: BEGIN, the settings (before any savepoint, so that no rollback reverts them),
the body, the role restored, the fenced settle whose WHERE holds the boundary condition, COMMIT. A body that committed by itself has
lost the marker, so its settle matches no row.
Only PostgreSQL has settings; elsewhere everything here is a plain transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import get_conf
from ..exceptions import NoTenantHere, OutsideTenantTransaction, TenantMismatch, TransactionBoundaryBroken
from .current import Origin, current_origin, in_job, system_origin, use_origin

BOUNDARY_SETTING = "dtq.boundary"
SAVED_ROLE_SETTING = "dtq.saved_role"
_SAVEPOINT_STATEMENTS = ("SAVEPOINT ", "RELEASE SAVEPOINT ", "ROLLBACK TO SAVEPOINT ")

# Aliases whose statements are expected here: inside a job's or a tenant's transaction, or the ledger's own.
_open: ContextVar[frozenset[str]] = ContextVar("django_tenant_queue.open_aliases", default=frozenset())


@dataclass(frozen=True, slots=True)
class Boundary:
    """The transaction a job's body must still be in when it is settled. `condition` and `params` go into settle's WHERE."""

    marker: str
    tenant_id: str
    tenant_setting: str
    savepoints: int
    condition: str
    params: tuple[str, ...]


def has_settings(connection: BaseDatabaseWrapper) -> bool:
    """Whether this database can hold a tenant."""
    return connection.vendor == "postgresql"


def marker_of(job_id: object, fence: int) -> str:
    """The boundary marker of one attempt."""
    return f"{job_id}.{fence}"


def enter_tenant(connection: BaseDatabaseWrapper, origin: Origin, *, boundary: str) -> Boundary:
    """Set tenant, actor, boundary marker and the task role, in one statement, for the rest of this transaction.

    Call it first thing inside atomic().
    """
    if has_settings(connection):
        _set(connection, {**_wanted(origin), BOUNDARY_SETTING: boundary}, role=get_conf().task_role)
    return _boundary(connection, origin.tenant_id or "", boundary)


def leave_role(connection: BaseDatabaseWrapper) -> None:
    """Back to the role from before enter_tenant(). No statement when no TASK_ROLE is configured. Call it before settle."""
    if get_conf().task_role is not None and has_settings(connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('role', coalesce(nullif(current_setting(%s, true), ''), 'none'), true)", [SAVED_ROLE_SETTING])


@contextmanager
def job_transaction(using: str, origin: Origin, marker: str) -> Iterator[Boundary]:
    """The transaction of an atomic job: settings set, statements allowed until just before COMMIT, so not in on_commit callbacks.

    Inside a transaction of the caller (eager mode in a test) it is a savepoint, and the caller's settings come back after it.
    """
    connection = connections[using]
    with ExitStack() as stack:
        if connection.in_atomic_block:
            stack.enter_context(_statements_allowed(using))
            stack.enter_context(_put_back(connection))
        stack.enter_context(transaction.atomic(using=using))
        stack.enter_context(_statements_allowed(using))
        yield enter_tenant(connection, origin, boundary=marker)


def still_inside(connection: BaseDatabaseWrapper, boundary: Boundary) -> None:
    """Without a query, before settle: raises TransactionBoundaryBroken when the body left an atomic() block open or its transaction closed.

    Django would take the block left open for its own and never commit.
    """
    if not connection.in_atomic_block or connection.closed_in_transaction or connection.connection is None:
        raise TransactionBoundaryBroken("The task closed the connection of its own transaction")
    if len(connection.savepoint_ids) != boundary.savepoints:
        raise TransactionBoundaryBroken("The task left an atomic() block open, or closed one that was not its own")


def broken_boundary(connection: BaseDatabaseWrapper, boundary: Boundary) -> str | None:
    """Which part of the boundary is broken, as the beginning of a sentence; None when it holds.

    One query, for when settle matched no row.
    """
    if not has_settings(connection):
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s, true), current_setting(%s, true)", [BOUNDARY_SETTING, boundary.tenant_setting])
        marker, tenant_id = cursor.fetchone()
    if marker != boundary.marker:
        return "The task committed or rolled back its own transaction"
    if (tenant_id or "") != boundary.tenant_id:
        return f"The task changed the tenant setting {boundary.tenant_setting} in the middle of its transaction"
    return None


@contextmanager
def tenant_transaction(using: str | None = None) -> Iterator[None]:
    """atomic() with the current tenant and actor set in the database: in atomic=False tasks, callbacks, requests and tenant_context().

    Inside a transaction of the same tenant it is a savepoint. Raises NoTenantHere without a tenant (or system_context, or a job), and
    TenantMismatch inside another tenant's transaction. `using`: default the DATABASE setting.
    """
    alias = using or get_conf().database
    origin = current_origin()
    if origin is None or (origin.tenant_id is None and not origin.system and not in_job()):
        raise NoTenantHere()
    connection = connections[alias]
    with ExitStack() as stack:
        stack.enter_context(_settings_of(connection, origin) if connection.in_atomic_block else _new_transaction(connection, origin))
        yield


@contextmanager
def _new_transaction(connection: BaseDatabaseWrapper, origin: Origin) -> Iterator[None]:
    conf = get_conf()
    with transaction.atomic(using=connection.alias), _statements_allowed(connection.alias):
        if has_settings(connection):
            _set(connection, _wanted(origin), role=conf.task_role if in_job() else None)
        yield


@contextmanager
def _settings_of(connection: BaseDatabaseWrapper, origin: Origin) -> Iterator[None]:
    """A savepoint under this origin. Settings change before it and come back after it: its rollback would revert, its release keep them."""
    with _statements_allowed(connection.alias):
        if not has_settings(connection):
            with transaction.atomic(using=connection.alias):
                yield
            return
        setting, wanted = get_conf().tenant_setting, _wanted(origin)
        found = _current(connection, tuple(wanted))
        tenant = found[setting]
        if tenant and tenant != wanted[setting]:
            raise TenantMismatch(tenant, origin.tenant_id)
        with _held(connection, wanted, found), transaction.atomic(using=connection.alias):
            yield


@contextmanager
def system_context() -> Iterator[None]:
    """Act for nobody: may enqueue for any tenant, sees no tenant's rows.

    Also inside a tenant's open transaction: its setting is empty in the block and comes back after it.
    """
    with ExitStack() as stack:
        stack.enter_context(use_origin(system_origin()))
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and has_settings(connection) and _usable(connection):
                stack.enter_context(_no_tenant(connection))
        yield


@contextmanager
def _no_tenant(connection: BaseDatabaseWrapper) -> Iterator[None]:
    nothing = dict.fromkeys((get_conf().tenant_setting, get_conf().actor_setting), "")
    with _statements_allowed(connection.alias):
        found = _current(connection, tuple(nothing))
    with _held(connection, nothing, found):
        yield


@contextmanager
def _held(connection: BaseDatabaseWrapper, wanted: dict[str, str], found: dict[str, str]) -> Iterator[None]:
    """These settings in the block, those found before again after it; no statement when they are the same."""
    if wanted == found:
        yield
        return
    with _statements_allowed(connection.alias):
        _set(connection, wanted)
    try:
        yield
    finally:
        # A transaction that failed or ended needs nothing put back: its rollback reverts the settings.
        if connection.in_atomic_block and _usable(connection):
            with _statements_allowed(connection.alias):
                _set(connection, found)


@contextmanager
def _put_back(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """What the block sets, it does not leave behind."""
    names = (get_conf().tenant_setting, get_conf().actor_setting, BOUNDARY_SETTING)
    found = _current(connection, names) if has_settings(connection) else {}
    try:
        yield
    finally:
        if found and connection.in_atomic_block and _usable(connection):
            _set(connection, found)


@contextmanager
def as_queue_role(using: str) -> Iterator[None]:
    """For statements on this app's own tables from inside a body: allowed also outside tenant_transaction(), and not as the task's role.

    With a TASK_ROLE inside a transaction the block is a savepoint of its own; the task's role is back after it.
    """
    connection = connections[using]
    with _statements_allowed(using):
        if get_conf().task_role is None or not in_job() or not connection.in_atomic_block or not has_settings(connection):
            yield
            return
        role = _current(connection, ("role",))["role"]
        with transaction.atomic(using=using):
            leave_role(connection)
            yield
            _set(connection, {"role": role})  # after an exception the savepoint's rollback does this


@contextmanager
def only_in_tenant_transaction() -> Iterator[None]:
    """Refuse statements outside tenant_transaction() in the block, on every PostgreSQL alias: in autocommit no setting holds the tenant.

    Around a whole job, on_commit callbacks included; the body of an atomic job is allowed by job_transaction().
    """
    token = _open.set(frozenset())
    try:
        with ExitStack() as stack:
            for connection in connections.all():
                if has_settings(connection):
                    stack.enter_context(connection.execute_wrapper(_refuse_outside))
            yield
    finally:
        _open.reset(token)


def _refuse_outside(execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    # Savepoint statements see no rows, and Django issues them when it closes a block that a body left open.
    if context["connection"].alias not in _open.get() and not str(sql).startswith(_SAVEPOINT_STATEMENTS):
        raise OutsideTenantTransaction()
    return execute(sql, params, many, context)


@contextmanager
def _statements_allowed(alias: str) -> Iterator[None]:
    token = _open.set(_open.get() | {alias})
    try:
        yield
    finally:
        _open.reset(token)


def _wanted(origin: Origin) -> dict[str, str]:
    return {get_conf().tenant_setting: origin.tenant_id or "", get_conf().actor_setting: origin.actor_id or ""}


def _boundary(connection: BaseDatabaseWrapper, tenant_id: str, marker: str) -> Boundary:
    setting = get_conf().tenant_setting
    if not has_settings(connection):
        return Boundary(marker, tenant_id, setting, len(connection.savepoint_ids), "1 = 1", ())
    condition = "current_setting(%s, true) = %s AND current_setting(%s, true) = %s"
    return Boundary(marker, tenant_id, setting, len(connection.savepoint_ids), condition, (BOUNDARY_SETTING, marker, setting, tenant_id))


def _set(connection: BaseDatabaseWrapper, settings: dict[str, str], role: str | None = None) -> None:
    """One statement; PostgreSQL evaluates its columns from left to right, so the role is saved before it is switched."""
    columns, params = [], []
    for name, value in settings.items():
        columns.append("set_config(%s, %s, true)")
        params += [name, value]
    if role is not None:
        columns += ["set_config(%s, current_setting('role'), true)", "set_config('role', %s, true)"]
        params += [SAVED_ROLE_SETTING, role]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)}", params)


def _current(connection: BaseDatabaseWrapper, names: tuple[str, ...]) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(['current_setting(%s, true)'] * len(names))}", names)
        return {name: value or "" for name, value in zip(names, cursor.fetchone(), strict=True)}


def _usable(connection: BaseDatabaseWrapper) -> bool:
    """Whether this transaction still takes statements: neither Django nor PostgreSQL has it down as failed."""
    if connection.connection is None or connection.closed_in_transaction or connection.needs_rollback:
        return False
    return not has_settings(connection) or connection.connection.info.transaction_status.name in ("IDLE", "INTRANS")
