"""Workspaces (the tenants) and who may do what in them."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models


class Workspace(models.Model):
    """A customer of the shop product. Its `id` is the tenant id: part of addresses, and never changed."""

    id = models.SlugField("code", primary_key=True, max_length=64)
    name = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Membership(models.Model):
    """A user's role in a workspace. Not a tenant table: it is what decides which tenant a request may have."""

    RANKS: ClassVar[dict[str, int]] = {Role.VIEWER: 0, Role.MEMBER: 1, Role.ADMIN: 2, Role.OWNER: 3}

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "workspace"], name="shop_one_membership_per_workspace")]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace_id} as {self.role}"

    def is_at_least(self, role: Role) -> bool:
        """Whether this member's role includes what `role` may do. An unknown role may do nothing."""
        return self.RANKS.get(self.role, -1) >= self.RANKS[role]
