"""Asking for a new password and setting it. For people who are not signed in, so nothing here says who is a member."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from django_tenant_queue import enqueue, tenant_context, tenant_transaction

from ..forms import FindWorkspaceForm, ResetForm
from ..models import Membership, PasswordReset, Workspace
from ..models.resets import digest_of
from ..tasks import send_password_reset
from .page import sent

MOST_REQUESTS, WITHIN = 5, timedelta(minutes=10)
ANSWER = "If that address belongs to a member, a message with a link is on its way."


def find_workspace(request: HttpRequest) -> HttpResponse:
    """Which workspace is it about?"""
    form = FindWorkspaceForm(request.GET or None)
    if form.is_valid():
        return redirect("reset_request", form.cleaned_data["workspace"])
    return render(request, "shop/reset_find.html", {"form": form})


def reset_request(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Take an address. The answer is the same whether or not it is a member's."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    form = ResetForm(*sent(request))
    if request.method == "POST" and form.is_valid():
        with tenant_context(workspace.id):
            for membership in Membership.objects.select_related("user").filter(
                workspace=workspace, user__email__iexact=form.cleaned_data["email"]
            ):
                request_reset(membership)
        messages.success(request, ANSWER)
        return redirect("reset_request", workspace.id)
    return render(request, "shop/reset_request.html", {"form": form, "asked_workspace": workspace}, status=400 if form.errors else 200)


def request_reset(membership: Membership) -> None:
    """Record a request and its message's job in one transaction. Does nothing when too many were asked for lately."""
    with tenant_transaction():
        mine = PasswordReset.objects.filter(tenant_id=membership.workspace_id, user_id=membership.user_id)
        if membership.user.is_active and mine.filter(requested_at__gt=timezone.now() - WITHIN).count() < MOST_REQUESTS:
            reset = PasswordReset.objects.create(tenant_id=membership.workspace_id, user_id=membership.user_id)
            enqueue(send_password_reset, {"reset_id": reset.pk})


@never_cache
@sensitive_post_parameters("new_password1", "new_password2")
def reset_confirm(request: HttpRequest, workspace_id: str, token: str) -> HttpResponse:
    """Set the new password. The link works once."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    with tenant_context(workspace.id), tenant_transaction():
        # Locked, so that a link that is used twice at once works once.
        reset = PasswordReset.objects.select_for_update().filter(tenant_id=workspace.id, token_hash=digest_of(token)).first()
        user = User.objects.filter(pk=reset.user_id, is_active=True).first() if reset and reset.is_open else None
        if reset is None or user is None:
            raise Http404("This link was used, is older than an hour, or was never valid: ask for a new one.")
        form: SetPasswordForm[User] = SetPasswordForm(user, *sent(request))
        if request.method == "POST" and form.is_valid():
            form.save()
            PasswordReset.objects.filter(tenant_id=workspace.id, user=user, used_at=None).update(used_at=timezone.now())
            messages.success(request, "Your new password is set. Sign in with it.")
            return redirect("login")
    return render(request, "shop/reset_confirm.html", {"form": form}, status=400 if form.errors else 200)
