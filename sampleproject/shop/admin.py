"""Workspaces and their members in Django's admin. Tenant tables are not here: the admin has no tenant, so they would be empty."""

from __future__ import annotations

from django.contrib import admin

from .models import Membership, Workspace


class MembershipInline(admin.TabularInline):
    model = Membership
    extra = 0
    raw_id_fields = ["user"]


@admin.register(Workspace)
class WorkspaceAdmin(admin.ModelAdmin):
    list_display = ["name", "id", "created_at"]
    search_fields = ["id", "name"]
    inlines = [MembershipInline]
