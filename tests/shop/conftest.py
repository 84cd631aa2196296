"""Running task bodies as jobs, people who are signed in, and a receiver of webhooks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_tenant_queue import tenant_transaction
from django_tenant_queue.context import Origin
from django_tenant_queue.context.current import use_job, use_origin
from django_tenant_queue.envelope import RunningJob
from sampleproject.shop.models import Membership, Role, Workspace

from .factories import MembershipFactory, UserFactory, WorkspaceFactory

JobRun = Callable[..., AbstractContextManager[RunningJob]]


@pytest.fixture(autouse=True)
def media(settings: Any, tmp_path: Path) -> Path:
    """Uploads of a test go where they are removed."""
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Any) -> None:
    """A second of hashing for each person would be most of the time."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@contextmanager
def running_job(
    tenant_id: str = "acme", *, task: str = "test", fence: int = 1, job_id: UUID | None = None, atomic: bool = True
) -> Iterator[RunningJob]:
    """What a worker sets around a body: origin, job and, for atomic tasks, the tenant's transaction."""
    job = RunningJob(
        id=job_id or uuid4(), fence=fence, attempt=fence, tenant_id=tenant_id, actor_id="7", actor_type="user", correlation_id="test",
        task=task, queue="default", enqueued_at=timezone.now(), deadline=0,
    )  # fmt: skip
    with use_origin(Origin(tenant_id, "7", "user", "test")), use_job(job):
        if not atomic:
            yield job
            return
        with tenant_transaction():
            yield job


@pytest.fixture
def as_job(db: None) -> JobRun:
    return running_job


@contextmanager
def tenant(tenant_id: str) -> Iterator[None]:
    """A transaction of this tenant, for making and looking at rows."""
    with use_origin(Origin(tenant_id, None, "system", "test")), tenant_transaction():
        yield


@pytest.fixture
def acme(db: None) -> Workspace:
    return WorkspaceFactory(id="acme", name="Acme Garden Tools")


@pytest.fixture
def umbra(db: None) -> Workspace:
    return WorkspaceFactory(id="umbra", name="Umbra Lamps")


@pytest.fixture
def sign_in(acme: Workspace) -> Callable[[Role | None], Client]:
    """A client signed in as a person with this role in acme, or with none."""

    def inner(role: Role | None = Role.MEMBER) -> Client:
        user = MembershipFactory(workspace=acme, role=role).user if role else UserFactory()
        client = Client()
        client.force_login(user)
        return client

    return inner


@pytest.fixture
def member(acme: Workspace) -> Membership:
    return MembershipFactory(workspace=acme)


@pytest.fixture
def plain_role(db: None) -> None:
    """The suite's role must be a plain one, or every test of isolation would pass without a policy."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False,)


class Receiver:
    """A receiver of webhooks on a port of its own. Answers with `answers`, in order, the last one for ever; keeps what it got."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = [(200, {})]
        self.got: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status, headers = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: the test looks at `got`."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()
