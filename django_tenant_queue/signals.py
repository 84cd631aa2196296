"""Signals for what an operator must hear about. Receivers that raise are ignored."""

from django.dispatch import Signal

keeper_failing = Signal()
"""A keeper began to fail: `sender` its class, `name` of the keeper, `error`. Sent once until it works again."""

keeper_recovered = Signal()
"""A keeper works again: `sender` its class, `name` of the keeper, `seconds` that it had been failing."""

worker_started = Signal()
"""A process of the worker tree has been forked, before its first thread and connection: `sender` None, `role` one of "worker",
"quarantine", "keepers", "lease keeper". The place to start threads and open channels (APM agents, gRPC)."""
