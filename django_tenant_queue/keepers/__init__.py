"""Keepers: periodic repairers of ledger and schedule. They run under every supervisor and take turns; there is no leader."""

from .loop import Keeper, run
from .reaper import Reaper
from .reconciler import Reconciler
from .relay import Relay

__all__ = ["Keeper", "Reaper", "Reconciler", "Relay", "all_keepers", "run"]


def all_keepers() -> list[Keeper]:
    """A fresh one of each."""
    return [Relay(), Reaper(), Reconciler()]
