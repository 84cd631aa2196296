"""The workspace's jobs and what became of them."""

from __future__ import annotations

from django.db.models import Count
from django.http import HttpRequest, HttpResponse

from django_tenant_queue.models import Job, Status

from ..models import Membership
from ..tenancy import members_only
from .page import page

SHOWN = 100
COLUMNS = ("task", "status", "reason", "queue", "fence", "enqueued_at")
TITLES = {
    "sampleproject.shop.tasks.import_orders": "Read an orders file",
    "sampleproject.shop.tasks.import_order_rows": "Write orders",
    "sampleproject.shop.tasks.send_password_reset": "Send a password reset",
    "sampleproject.shop.tasks.generate_monthly_report": "Make a monthly report",
    "sampleproject.shop.tasks.deliver_webhook": "Deliver a webhook",
    "sampleproject.shop.tasks.measure_logo": "Measure a logo",
}


@members_only()
def jobs(request: HttpRequest, membership: Membership) -> HttpResponse:
    """The newest jobs, and how many there are in each state. The ledger is no tenant table: the filter is what keeps others' jobs out."""
    mine = Job.objects.filter(tenant_id=membership.workspace_id)
    chosen = request.GET.get("status", "")
    if chosen not in Status.values:
        chosen = ""
    counts = dict(mine.order_by().values_list("status").annotate(Count("pk")))
    shown = (mine.filter(status=chosen) if chosen else mine).only(*COLUMNS).order_by("-enqueued_at", "-pk")[:SHOWN]
    states = [(state, counts.get(state.value, 0)) for state in Status]
    rows = [(job, TITLES.get(job.task, job.task)) for job in shown]
    return page(request, membership, "jobs.html", rows=rows, states=states, chosen=chosen, total=sum(counts.values()))
