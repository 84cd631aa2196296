"""A table under row-level security, and raw SQL on it as the application's role: what the isolation tests look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from environ import Env

TABLE = "isolation_row"
POLICY = "tenant_id = nullif((SELECT current_setting('app.current_tenant_id', true)), '')"


def execute(sql: str, params: tuple[object, ...] = (), using: BaseDatabaseWrapper | None = None) -> list[tuple]:
    """Raw SQL; the rows, if it has any."""
    with (using or connections["default"]).cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []


def make_table() -> None:
    """Rows of tenants A and B, written before the policy exists."""
    execute(f"CREATE TABLE {TABLE} (tenant_id text NOT NULL, note text NOT NULL)")
    execute(f"INSERT INTO {TABLE} VALUES ('A', 'a1'), ('A', 'a2'), ('B', 'b1')")
    execute(f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY")
    execute(f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY")
    execute(f"CREATE POLICY tenant ON {TABLE} USING ({POLICY}) WITH CHECK ({POLICY})")


def drop_table() -> None:
    execute(f"DROP TABLE IF EXISTS {TABLE}")


def visible(using: BaseDatabaseWrapper | None = None) -> set[str]:
    """The notes of the rows that raw SQL without a WHERE sees."""
    return {note for (note,) in execute(f"SELECT note FROM {TABLE}", using=using)}


def setting(name: str = "app.current_tenant_id") -> str:
    return execute("SELECT current_setting(%s, true)", (name,))[0][0] or ""


def admin_url() -> str | None:
    """The superuser's URL, which only the harness has."""
    return os.environ.get("ADMIN_DATABASE_URL")


@contextmanager
def as_other_role(url_or_user: str, password: str | None = None, *, database: str | None = None) -> Iterator[BaseDatabaseWrapper]:
    """A connection of its own to the test database (or `database`) as another role: (user, password), or the role of a URL."""
    credentials = {"USER": url_or_user, "PASSWORD": password}
    if password is None:
        parsed = Env.db_url_config(url_or_user)
        credentials = {"USER": parsed["USER"], "PASSWORD": parsed["PASSWORD"]}
    other = connection.copy()
    other.settings_dict.update(credentials)
    if database is not None:
        other.settings_dict["NAME"] = database
    try:
        yield other
    finally:
        other.close()
