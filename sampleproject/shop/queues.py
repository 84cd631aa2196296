"""The shop's classes of work, as names of queues. With SHOP_ONE_LINE they are all the one queue there is."""

from __future__ import annotations

from django.conf import settings

INTERACTIVE, DEFAULT, BULK = ("line", "line", "line") if settings.SHOP_ONE_LINE else ("interactive", "default", "bulk")
