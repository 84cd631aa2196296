"""Whether the database role obeys row-level security: a superuser, BYPASSRLS or an owner without FORCE sees every tenant's rows."""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import get_conf
from .database import has_settings

_ROLE = """
    SELECT rolname, rolsuper, rolbypassrls, pg_has_role(session_user, oid, 'MEMBER'), session_user
    FROM pg_roles WHERE rolname = coalesce(%s, current_user)"""
_SECURED = """
    SELECT format('%%I.%%I', n.nspname, c.relname), NOT c.relforcerowsecurity AND pg_has_role(%s, c.relowner, 'USAGE')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relrowsecurity AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg_%%'
    ORDER BY 1 LIMIT 1000"""


def database_role_problem(connection: BaseDatabaseWrapper) -> str | None:
    """Why workers must not start with the role that bodies run under (TASK_ROLE, else the connection's own); None when they may.

    Only where a table has row-level security; ALLOW_RLS_BYPASS allows it anyway.
    """
    conf = get_conf()
    if not has_settings(connection):
        return None
    with connection.cursor() as cursor:
        cursor.execute(_ROLE, [conf.task_role])
        found = cursor.fetchone()
    if found is None:
        return f"TENANT_QUEUE['TASK_ROLE'] is {conf.task_role!r}, but the database has no such role: create it, or set TASK_ROLE to None."
    role, superuser, bypass, member, login = found
    if not member:
        return f"The database role {login!r} may not become TASK_ROLE {role!r}: GRANT {role} TO {login}, or set TASK_ROLE to None."
    secured = [] if not (superuser or bypass) or conf.allow_rls_bypass else _secured_tables(connection, role)
    if not secured:
        return None
    what = "a superuser" if superuser else "allowed to bypass row-level security (BYPASSRLS)"
    return (
        f"The database role {role!r} is {what}, so the row-level security of {secured[0][0]} does not hold and every job would see "
        "every tenant's rows. Use a plain role for workers, or set TENANT_QUEUE['ALLOW_RLS_BYPASS'] = True when that is meant."
    )


def owner_without_force(connection: BaseDatabaseWrapper) -> str | None:
    """A warning when the role owns tables whose row-level security is not forced: an owner is not bound by it. None otherwise."""
    if not has_settings(connection):
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(%s, current_user::text)", [get_conf().task_role])
        (role,) = cursor.fetchone()
    loose = [table for table, exempt in _secured_tables(connection, role) if exempt]
    if not loose:
        return None
    return (
        f"The database role {role!r} owns {', '.join(loose[:5])}{' and more' if len(loose) > 5 else ''}, whose row-level security "
        "does not bind its owner: ALTER TABLE ... FORCE ROW LEVEL SECURITY."
    )


def _secured_tables(connection: BaseDatabaseWrapper, role: str) -> list[tuple[str, bool]]:
    """(table, whether the role is exempt as its owner) of every table with row-level security."""
    with connection.cursor() as cursor:
        cursor.execute(_SECURED, [role])
        return cursor.fetchall()
