"""Whose work this is: in Python (`current`) and in the database (`database`)."""

from .current import Origin, current_job, current_origin, tenant_context
from .database import system_context, tenant_transaction

__all__ = ["Origin", "current_job", "current_origin", "system_context", "tenant_context", "tenant_transaction"]
