"""Which workspace a request is for, and what its user may do there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase

from .models import Membership, Role

P = ParamSpec("P")
SESSION_KEY = "workspace"
_IN_PATH = re.compile(r"/w/([-a-zA-Z0-9_]+)/")


def tenant_of_request(request: HttpRequest) -> str | None:
    """The id of the workspace in the address /w/<id>/..., else the session's; None unless the user is a member of it."""
    membership = membership_of(request)
    return membership.workspace_id if membership else None


def membership_of(request: HttpRequest) -> Membership | None:
    """The user's membership in the request's workspace. Asked of the database once per request."""
    if not hasattr(request, "_shop_membership"):
        request._shop_membership = _find(request)  # type: ignore[attr-defined]
    return request._shop_membership  # type: ignore[attr-defined]


def _find(request: HttpRequest) -> Membership | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    in_path = _IN_PATH.match(request.path_info)
    workspace_id = in_path[1] if in_path else request.session.get(SESSION_KEY)
    if not workspace_id:
        return None
    return Membership.objects.select_related("workspace").filter(user=user, workspace_id=workspace_id).first()


View = Callable[Concatenate[HttpRequest, Membership, P], HttpResponseBase]


def members_only(role: Role = Role.VIEWER) -> Callable[[View[P]], Callable[..., HttpResponseBase]]:
    """A view of /w/<workspace_id>/... for members with at least `role`; it gets the membership as its second argument.

    To others the workspace does not exist (404); a member with a lesser role is told so (403).
    """

    def decorate(view: View[P]) -> Callable[..., HttpResponseBase]:
        @login_required
        @wraps(view)
        def inner(request: HttpRequest, workspace_id: str, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            membership = membership_of(request)
            if membership is None or membership.workspace_id != workspace_id:
                raise Http404("There is no such workspace, or you are not a member of it.")
            if not membership.is_at_least(role):
                raise PermissionDenied(
                    f"This needs the role {role.label} or higher in {membership.workspace.name}; yours is {membership.role}."
                )
            if request.session.get(SESSION_KEY) != workspace_id:
                request.session[SESSION_KEY] = workspace_id
            return view(request, membership, *args, **kwargs)

        return inner

    return decorate
