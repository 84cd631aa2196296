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


def sent(request: HttpRequest) -> tuple[Any, Any]:
    """(data, files) for a form; (None, None) unless this is a POST. An empty POST is an answer too, and gets its errors."""
    return (request.POST, request.FILES) if request.method == "POST" else (None, None)
