"""Honest defaults for the shop's rows. Tenant rows must be made inside the tenant's transaction."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from uuid import uuid4

import factory
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from factory.django import DjangoModelFactory, Password

from sampleproject.shop.models import (
    Membership,
    Order,
    OrderUpload,
    PasswordReset,
    Role,
    WebhookDelivery,
    WebhookEndpoint,
    Workspace,
)

PASSWORD = "correct horse battery"
ORDERS = (
    "order_number,customer_email,placed_on,amount,currency\n"
    "A-1,ada@example.com,2024-05-31,12.50,EUR\n"
    "A-2,nobody,2024-05-31,1.00,EUR\n"
    "A-3,eve@example.com,2024-06-01,7.00,USD\n"
)


class WorkspaceFactory(DjangoModelFactory[Workspace]):
    class Meta:
        model = Workspace

    id = factory.Sequence(lambda number: f"workspace-{number}")
    name = factory.LazyAttribute(lambda workspace: workspace.id.title())


class UserFactory(DjangoModelFactory[User]):
    class Meta:
        model = User
        skip_postgeneration_save = True

    username = factory.Sequence(lambda number: f"person{number}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.com")
    password = Password(PASSWORD)


class MembershipFactory(DjangoModelFactory[Membership]):
    class Meta:
        model = Membership

    user = factory.SubFactory(UserFactory)
    workspace = factory.SubFactory(WorkspaceFactory)
    role = Role.MEMBER


class UploadFactory(DjangoModelFactory[OrderUpload]):
    """`content`: text or bytes of the file."""

    class Meta:
        model = OrderUpload

    class Params:
        content: Any = ORDERS

    tenant_id = "acme"
    name = "orders.csv"
    file = factory.LazyAttribute(
        lambda upload: ContentFile(upload.content.encode() if isinstance(upload.content, str) else upload.content, name="orders.csv")
    )


class OrderFactory(DjangoModelFactory[Order]):
    class Meta:
        model = Order

    tenant_id = "acme"
    upload = factory.SubFactory(UploadFactory, tenant_id=factory.SelfAttribute("..tenant_id"))
    line = factory.Sequence(lambda number: number + 2)
    number = factory.Sequence(lambda number: f"A-{number}")
    customer_email = "ada@example.com"
    placed_on = date(2024, 5, 31)
    amount = Decimal("12.50")
    currency = "EUR"
    job_id = factory.LazyFunction(uuid4)
    fence = 1


class ResetFactory(DjangoModelFactory[PasswordReset]):
    class Meta:
        model = PasswordReset

    tenant_id = "acme"
    user = factory.SubFactory(UserFactory)


class EndpointFactory(DjangoModelFactory[WebhookEndpoint]):
    class Meta:
        model = WebhookEndpoint

    tenant_id = "acme"
    url = "http://127.0.0.1:9/hook"


class DeliveryFactory(DjangoModelFactory[WebhookDelivery]):
    class Meta:
        model = WebhookDelivery

    tenant_id = "acme"
    endpoint = factory.SubFactory(EndpointFactory, tenant_id=factory.SelfAttribute("..tenant_id"))
    event = "test"
    body = factory.LazyFunction(lambda: {"answer": 42})
