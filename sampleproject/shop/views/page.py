"""Renders a page of a workspace."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ..models import Membership, Role


def page(request: HttpRequest, membership: Membership, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
    """A page with the workspace's navigation. Rows must have been read already: tenant tables show nothing after their transaction."""
    context |= {"membership": membership, "workspace": membership.workspace, "may_write": membership.is_at_least(Role.MEMBER)}
    return render(request, f"shop/{template}", context, status=status)
