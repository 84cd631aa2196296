"""Real Valkey and Postgres servers from wheels, started privately and stopped again: for the demo and the tests."""

from embedded.errors import EmbeddedError
from embedded.postgres import Postgres
from embedded.valkey import Valkey

__all__ = ["EmbeddedError", "Postgres", "Valkey"]
