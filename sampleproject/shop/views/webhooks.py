"""Where the workspace is told of events."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from django_tenant_queue import enqueue, tenant_transaction

from ..forms import EndpointForm
from ..models import Membership, Role, WebhookDelivery, WebhookEndpoint
from ..queues import INTERACTIVE
from ..tasks import deliver_webhook
from ..tenancy import members_only
from .page import page, sent

SHOWN = 50


@members_only(Role.ADMIN)
def endpoints(request: HttpRequest, membership: Membership) -> HttpResponse:
    """The receivers, the newest deliveries, and a form for another receiver."""
    tenant_id = membership.workspace_id
    form = EndpointForm(*sent(request))
    if request.method == "POST" and form.is_valid():
        with tenant_transaction():
            WebhookEndpoint.objects.create(tenant_id=tenant_id, url=form.cleaned_data["url"])
        return redirect("webhooks", tenant_id)
    with tenant_transaction():
        known = list(WebhookEndpoint.objects.filter(tenant_id=tenant_id).order_by("pk"))
        told = WebhookDelivery.objects.select_related("endpoint").filter(tenant_id=tenant_id).order_by("-pk")
        deliveries = list(told[:SHOWN])
    return page(request, membership, "webhooks.html", form=form, endpoints=known, deliveries=deliveries, status=400 if form.errors else 200)


@require_POST
@members_only(Role.ADMIN)
def send_test(request: HttpRequest, membership: Membership, endpoint_id: int) -> HttpResponse:
    """Send a test event. Somebody waits for it, so it is interactive."""
    with tenant_transaction():
        endpoint = WebhookEndpoint.objects.filter(tenant_id=membership.workspace_id, pk=endpoint_id).first()
        if endpoint is None:
            raise Http404("There is no such webhook in this workspace.")
        delivery = WebhookDelivery.objects.create(
            tenant_id=membership.workspace_id, endpoint=endpoint, event="test", body={"sent_at": timezone.now().isoformat()}
        )
        enqueue(deliver_webhook, {"delivery_id": delivery.pk}, queue=INTERACTIVE)
    messages.success(request, f"A test event is on its way to {endpoint.url}.")
    return redirect("webhooks", membership.workspace_id)
