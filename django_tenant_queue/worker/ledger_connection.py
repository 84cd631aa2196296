"""A thread's connection to the ledger, between jobs: kept open, made again when it died, waited for when there is none to be had."""

from __future__ import annotations

import time

from django.db import Error as DatabaseError
from django.db import connections

from .. import logs
from ..brokers.backoff import backoff_seconds
from ..conf import Conf


class LedgerConnection:
    """Of whichever thread calls."""

    def __init__(self, conf: Conf) -> None:
        self._alias = conf.database

    def reach(self) -> None:
        """Return when this thread is connected; until then it takes no job, so no lease is burnt on a full or absent server."""
        attempt = 0
        while True:
            try:
                return connections[self._alias].ensure_connection()
            except DatabaseError as error:
                logs.ledger_trouble("thread", error)
                time.sleep(backoff_seconds(attempt))
                attempt += 1

    def freshen(self) -> None:
        """Drop a connection that died while it was idle. Costs one round trip; never raises."""
        connection = connections[self._alias]
        if connection.connection is not None and not connection.is_usable():
            connection.close()
