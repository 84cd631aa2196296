"""Sending an orders file and watching its import."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

from django_tenant_queue import enqueue, tenant_transaction

from ..forms import UploadForm
from ..models import Membership, Order, OrderUpload, RejectedRow, Role
from ..tasks import import_orders
from ..tenancy import members_only
from .page import page, sent

REJECTED_PER_PAGE = 100


@members_only(Role.MEMBER)
def new_upload(request: HttpRequest, membership: Membership) -> HttpResponse:
    """Take a file; its import is a job, recorded in one transaction with the upload."""
    form = UploadForm(*sent(request))
    if request.method == "POST" and form.is_valid():
        file = form.cleaned_data["file"]
        with tenant_transaction():
            upload = OrderUpload.objects.create(
                tenant_id=membership.workspace_id, file=file, name=file.name[:255], created_by_id=membership.user_id
            )
            enqueue(import_orders, {"upload_id": upload.pk})
        return redirect("upload", membership.workspace_id, upload.pk)
    return page(request, membership, "upload_new.html", form=form, status=400 if form.errors else 200)


@members_only()
def upload(request: HttpRequest, membership: Membership, upload_id: int) -> HttpResponse:
    """How far an import came, and its bad rows."""
    with tenant_transaction():
        found = _find(membership, upload_id)
        rejected = RejectedRow.objects.filter(tenant_id=membership.workspace_id, upload=found).order_by("line")
        rows = Paginator(rejected, REJECTED_PER_PAGE).get_page(request.GET.get("page"))
        rows.object_list = list(rows.object_list)
        written = _written(found)
    return page(request, membership, "upload.html", upload=found, written=written, rejected=rows)


@members_only()
def upload_progress(request: HttpRequest, membership: Membership, upload_id: int) -> JsonResponse:
    """The same in numbers, for the page to follow."""
    with tenant_transaction():
        found = _find(membership, upload_id)
        written = _written(found)
    done = found.status == OrderUpload.Status.REFUSED or (found.is_read and written >= found.good_rows)
    return JsonResponse(
        {"status": found.get_status_display(), "good_rows": found.good_rows, "bad_rows": found.bad_rows, "written": written, "done": done}
    )


def _find(membership: Membership, upload_id: int) -> OrderUpload:
    found = OrderUpload.objects.filter(tenant_id=membership.workspace_id, pk=upload_id).first()
    if found is None:
        raise Http404("There is no such upload in this workspace.")
    return found


def _written(upload: OrderUpload) -> int:
    return Order.objects.filter(tenant_id=upload.tenant_id, upload=upload).count()
