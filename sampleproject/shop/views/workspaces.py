"""The list of one's workspaces, and a workspace's front page."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from django_tenant_queue import tenant_transaction

from ..models import Membership, MonthlyReport, OrderUpload
from ..tenancy import members_only
from .page import page

RECENT = 5


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The workspaces of the person who is signed in."""
    assert request.user.is_authenticated
    memberships = Membership.objects.select_related("workspace").filter(user=request.user).order_by("workspace__name")
    return render(request, "shop/home.html", {"memberships": memberships})


@members_only()
def overview(request: HttpRequest, membership: Membership) -> HttpResponse:
    """Recent uploads and reports."""
    tenant_id = membership.workspace_id
    with tenant_transaction():
        uploads = list(OrderUpload.objects.filter(tenant_id=tenant_id).order_by("-created_at")[:RECENT])
        reports = list(MonthlyReport.objects.filter(tenant_id=tenant_id).order_by("-made_at")[:RECENT])
    return page(request, membership, "overview.html", uploads=uploads, reports=reports)
