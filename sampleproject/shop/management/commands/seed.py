"""Fills the shop with workspaces and people, to look at it in a browser."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand
from django.db import transaction

from sampleproject.shop.models import Membership, Role, Workspace
from sampleproject.shop.sample_orders import write_orders

WORKSPACES = {"acme": "Acme Garden Tools", "umbra": "Umbra Lamps", "noor": "Noor Ceramics"}
# user name -> role in each workspace, "" for none
PEOPLE = {
    "olga": (Role.OWNER, Role.MEMBER, ""),
    "ada": (Role.ADMIN, "", Role.OWNER),
    "mina": (Role.MEMBER, Role.OWNER, ""),
    "viktor": (Role.VIEWER, Role.VIEWER, Role.VIEWER),
}
ORDERS_FILE, ROWS, BAD_EVERY = "orders.csv", 2000, 250


class Command(BaseCommand):
    help = (
        "Make workspaces, people with one password for all, and an orders file to upload. For local use; run it again for a new password."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--password", help="default: a random one, printed")

    def handle(self, *, password: str | None, **options: Any) -> None:
        password = password or secrets.token_urlsafe(9)
        with transaction.atomic():
            for name, roles in PEOPLE.items():
                self._person(name, roles, password)
        file = self._orders_file()
        self.stdout.write(f"Workspaces: {', '.join(WORKSPACES)}. Sign in as one of {', '.join(PEOPLE)} with the password {password}")
        self.stdout.write(f"Orders to upload: {file} ({ROWS} rows, {ROWS // BAD_EVERY} of them bad)")

    def _person(self, name: str, roles: tuple[str, ...], password: str) -> None:
        user, _ = User.objects.get_or_create(username=name, defaults={"email": f"{name}@example.com"})
        user.set_password(password)
        user.save(update_fields=["password"])
        for (code, title), role in zip(WORKSPACES.items(), roles, strict=True):
            workspace, _ = Workspace.objects.get_or_create(id=code, defaults={"name": title})
            if role:
                Membership.objects.update_or_create(user=user, workspace=workspace, defaults={"role": role})

    def _orders_file(self) -> Path:
        path = Path(settings.MEDIA_ROOT) / ORDERS_FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            write_orders(file, ROWS, bad_every=BAD_EVERY)
        return path
