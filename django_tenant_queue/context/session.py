"""What a job leaves behind on its connection, and when that connection is thrown away."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """How deep in transactions a connection is. Before a worker's job: not at all; in eager mode inside whatever the caller opened."""

    in_atomic_block: bool = False
    savepoints: int = 0
    autocommit: bool = True


CLEAN = ConnectionState()


def state_of(connection: BaseDatabaseWrapper) -> ConnectionState:
    """Without a query."""
    autocommit = connection.autocommit if connection.connection is not None and not connection.in_atomic_block else True
    return ConnectionState(connection.in_atomic_block, len(connection.savepoint_ids), autocommit)


def reset_after_job(connection: BaseDatabaseWrapper, before: ConnectionState = CLEAN) -> bool:
    """Throw the connection away unless it is as it was `before` the job: no transaction left open, autocommit not switched, not broken.

    Returns whether it was thrown away. Without a query: a clean connection costs nothing.
    """
    if state_of(connection) == before and not connection.closed_in_transaction and _is_quiet(connection, before):
        return False
    discard(connection)
    return True


def discard(connection: BaseDatabaseWrapper) -> None:
    """Close the real connection and forget Django's wrapper: its idea of open blocks is wrong. The next use of the alias connects anew."""
    raw = connection.connection
    if raw is not None:
        raw.close()  # before the wrapper's close(): a pool takes a closed connection out, an open one back in
    connection.run_on_commit = []
    connection.close()
    if connections[connection.alias] is connection:
        del connections[connection.alias]


def _is_quiet(connection: BaseDatabaseWrapper, before: ConnectionState) -> bool:
    """What libpq knows of its session: outside a transaction nothing is open, inside the caller's one it has not failed."""
    if connection.vendor != "postgresql" or connection.connection is None:
        return True
    return connection.connection.info.transaction_status.name == ("INTRANS" if before.in_atomic_block else "IDLE")
