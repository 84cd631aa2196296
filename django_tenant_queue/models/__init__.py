"""The ledger: what exists and what happened."""

from .budget import TenantBudget
from .dead_letter import DeadLetter
from .job import Job, Status

__all__ = ["DeadLetter", "Job", "Status", "TenantBudget"]
