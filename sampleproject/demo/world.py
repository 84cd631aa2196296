"""The workspaces of a run: people, receivers of webhooks, some orders from before. Each run has its own, so runs do not mix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.text import slugify

from django_tenant_queue import tenant_context, tenant_transaction
from sampleproject.shop.models import Membership, Order, OrderUpload, Role, WebhookEndpoint, Workspace
from sampleproject.shop.sample_orders import sample_rows

from .scenario import NAMES, Scenario

REQUESTS_PER_PERSON = 4  # the shop takes at most five resets of one person in ten minutes
ORDERS_BEFORE = 60
WORKSPACES_WITH_RECEIVER_OF_REPORTS = 3
NO_JOB = UUID(int=0)


@dataclass(frozen=True)
class World:
    """`quiet` are workspace ids; `people` and `endpoints` are theirs."""

    noisy: Membership
    quiet: Sequence[str]
    people: Mapping[str, Sequence[Membership]]
    endpoints: Mapping[str, int]

    @property
    def tenants(self) -> list[str]:
        return [self.noisy.workspace_id, *self.quiet]


def build(scenario: Scenario, run_id: str, receiver_url: str) -> World:
    """Make the workspaces. Their ids begin with `run_id`, which no other run has."""
    names = [NAMES[i % len(NAMES)] for i in range(scenario.quiet_workspaces + 1)]
    workspaces = [Workspace(id=f"{run_id}-{i:02}-{slugify(name)}", name=name) for i, name in enumerate(names)]
    per_workspace = -(-scenario.resets_each // REQUESTS_PER_PERSON) or 1
    with transaction.atomic():
        Workspace.objects.bulk_create(workspaces)
        memberships = _people(workspaces, per_workspace)
    quiet = [workspace.id for workspace in workspaces[1:]]
    endpoints = {workspace_id: _endpoint(workspace_id, receiver_url, i) for i, workspace_id in enumerate(quiet)}
    for workspace_id in quiet:
        _orders_before(workspace_id)
    people = {workspace_id: [m for m in memberships if m.workspace_id == workspace_id] for workspace_id in quiet}
    return World(memberships[0], quiet, people, endpoints)


def _people(workspaces: Sequence[Workspace], per_workspace: int) -> list[Membership]:
    """Each workspace's owner comes first. Nobody can sign in with a password: there is none."""
    wanted = [(workspace, i) for workspace in workspaces for i in range(per_workspace)]
    users = User.objects.bulk_create(
        User(username=f"{workspace.id}-{i}", email=f"person{i}@{workspace.id}.example.com", password="!") for workspace, i in wanted
    )
    return Membership.objects.bulk_create(
        Membership(user=user, workspace=workspace, role=Role.OWNER if i == 0 else Role.MEMBER)
        for user, (workspace, i) in zip(users, wanted, strict=True)
    )


def _endpoint(workspace_id: str, url: str, index: int) -> int:
    """Only the first few are told of every report; the others get the webhooks they ask for."""
    with tenant_context(workspace_id), tenant_transaction():
        active = index < WORKSPACES_WITH_RECEIVER_OF_REPORTS
        return WebhookEndpoint.objects.create(tenant_id=workspace_id, url=url, active=active).pk


def _orders_before(workspace_id: str) -> None:
    with tenant_context(workspace_id), tenant_transaction():
        upload = OrderUpload.objects.create(tenant_id=workspace_id, name="before.csv", good_rows=ORDERS_BEFORE)
        Order.objects.bulk_create(
            Order(
                tenant_id=workspace_id, upload=upload, line=row.line, number=row.order_number, customer_email=row.customer_email,
                placed_on=row.placed_on, amount=row.amount, currency=row.currency, job_id=NO_JOB, fence=0,
            )
            for row in sample_rows(ORDERS_BEFORE, seed=len(workspace_id))
        )  # fmt: skip
