"""Ordering a monthly report and reading it."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from django_tenant_queue import enqueue, tenant_transaction

from ..forms import ReportForm
from ..models import Membership, MonthlyReport, Role
from ..tasks import generate_monthly_report
from ..tenancy import members_only
from .page import page, sent

SHOWN = 50


@members_only()
def reports(request: HttpRequest, membership: Membership) -> HttpResponse:
    """The newest reports."""
    with tenant_transaction():
        made = list(MonthlyReport.objects.filter(tenant_id=membership.workspace_id).order_by("-made_at")[:SHOWN])
    return page(request, membership, "reports.html", reports=made)


@members_only(Role.MEMBER)
def new_report(request: HttpRequest, membership: Membership) -> HttpResponse:
    """Order the report of a month."""
    form = ReportForm(*sent(request))
    if request.method == "POST" and form.is_valid():
        year, month = form.cleaned_data["month"]
        enqueue(generate_monthly_report, {"year": year, "month": month})
        messages.success(request, f"The report of {year}-{month:02} is being made. It appears here when it is ready.")
        return redirect("reports", membership.workspace_id)
    return page(request, membership, "report_new.html", form=form, status=400 if form.errors else 200)


@members_only()
def report(request: HttpRequest, membership: Membership, report_id: int) -> HttpResponse:
    """One report."""
    with tenant_transaction():
        found = MonthlyReport.objects.filter(tenant_id=membership.workspace_id, pk=report_id).first()
    if found is None:
        raise Http404("There is no such report in this workspace.")
    return page(request, membership, "report.html", report=found)
