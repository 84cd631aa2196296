"""Turns: keepers of many processes do the same work one at a time, without a leader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from ..conf import Conf


@contextmanager
def turn(name: str, conf: Conf) -> Iterator[bool]:
    """A transaction on the ledger; True when it holds the lock `name`, False when another process does.

    The lock ends with the transaction, also when this process dies; PgBouncer in transaction mode keeps it whole.
    """
    with transaction.atomic(using=conf.database), connections[conf.database].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_number(name, conf.namespace)])
        yield cursor.fetchone()[0]


def _number(name: str, namespace: str) -> int:
    digest = hashlib.blake2s(f"dtq:{namespace}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
