"""The shop's pages: who may see and do what, and what they say to bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from django_tenant_queue.models import Job
from sampleproject.shop import tasks
from sampleproject.shop.models import Membership, OrderUpload, PasswordReset, RejectedRow, Role, WebhookEndpoint, Workspace

from .conftest import JobRun, tenant
from .factories import ORDERS, PASSWORD, EndpointFactory, MembershipFactory, OrderFactory, UploadFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_role")]
SignIn = Callable[..., Client]
NEW_UPLOAD = "/w/acme/uploads/new/"


def send(client: Client, content: bytes = ORDERS.encode(), name: str = "orders.csv") -> Any:
    return client.post(NEW_UPLOAD, {"file": SimpleUploadedFile(name, content)})


def text_of(response: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def job() -> Job:
    return Job.objects.get()


# -- signing in


def test_stranger_is_sent_to_the_sign_in_page(acme: Workspace) -> None:
    assert Client().get("/w/acme/").url == "/login/?next=/w/acme/"


def test_person_signs_in_and_sees_their_workspaces(member: Membership, umbra: Workspace) -> None:
    client = Client()
    client.post("/login/", {"username": member.user.username, "password": PASSWORD})
    page = text_of(client.get("/"))
    assert "Acme Garden Tools" in page
    assert "Umbra" not in page


def test_form_without_csrf_token_is_refused(member: Membership) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member.user)
    assert send(client).status_code == 403
    assert not Job.objects.exists()


# -- permissions


PAGES = ["", "uploads/new/", "reports/", "reports/new/", "jobs/", "webhooks/"]


@pytest.mark.parametrize("page", PAGES)
def test_workspace_of_others_does_not_exist(page: str, sign_in: SignIn, umbra: Workspace) -> None:
    assert sign_in(Role.OWNER).get(f"/w/umbra/{page}").status_code == 404
    assert sign_in(None).get(f"/w/acme/{page}").status_code == 404


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("role", list(Role))
def test_role_decides_which_pages_open(page: str, role: Role, sign_in: SignIn) -> None:
    allowed = {"": Role, "reports/": Role, "jobs/": Role, "webhooks/": {Role.OWNER, Role.ADMIN}}.get(page, set(Role) - {Role.VIEWER})
    assert sign_in(role).get(f"/w/acme/{page}").status_code == (200 if role in allowed else 403)


def test_viewer_cannot_upload(sign_in: SignIn) -> None:
    response = send(sign_in(Role.VIEWER))
    assert response.status_code == 403
    assert "This needs the role Member or higher in Acme Garden Tools; yours is viewer." in text_of(response)
    assert not Job.objects.exists()


def test_unknown_role_may_do_nothing(member: Membership) -> None:
    member.role = "emperor"
    assert not member.is_at_least(Role.VIEWER)


# -- uploads


def test_upload_records_file_and_job_of_the_person_and_workspace(member: Membership) -> None:
    client = Client()
    client.force_login(member.user)
    response = send(client)
    with tenant("acme"):
        upload = OrderUpload.objects.get()
        assert upload.file.read() == ORDERS.encode()
    assert response.url == f"/w/acme/uploads/{upload.pk}/"
    assert (upload.name, upload.created_by_id) == ("orders.csv", member.user_id)
    assert (job().task, job().tenant_id) == (tasks.import_orders.name, "acme")
    assert (job().actor_id, job().actor_type) == (str(member.user_id), "user")
    assert json.loads(job().payload) == {"upload_id": upload.pk}


def test_request_id_is_the_correlation_id(sign_in: SignIn) -> None:
    client = sign_in()
    client.post("/w/acme/reports/new/", {"month": "2024-05"}, headers={"X-Request-ID": "abc-1"})
    assert job().correlation_id == "abc-1"


def test_file_above_the_limit_is_refused(sign_in: SignIn, settings: Any) -> None:
    settings.SHOP_UPLOAD_MAX_BYTES = 10
    response = send(sign_in())
    assert response.status_code == 400
    assert "at most 10 bytes are possible: send it in parts" in text_of(response).replace("\xa0", " ")
    assert not Job.objects.exists()


def test_empty_or_missing_file_is_refused(sign_in: SignIn) -> None:
    client = sign_in()
    assert "The file is empty: choose a CSV file" in text_of(send(client, b""))
    assert client.post(NEW_UPLOAD).status_code == 400


def test_name_of_the_file_cannot_leave_its_directory(sign_in: SignIn) -> None:
    send(sign_in(), name="../../<b>evil</b>.csv")
    with tenant("acme"):
        upload = OrderUpload.objects.get()
    assert re.fullmatch(r"uploads/acme/[0-9a-f]{32}\.csv", upload.file.name)


def test_upload_page_shows_progress_and_bad_rows(sign_in: SignIn, as_job: JobRun) -> None:
    client = sign_in()
    address = send(client).url
    with tenant("acme"):
        upload = OrderUpload.objects.get()
    with as_job("acme"):
        tasks.import_orders(upload.pk)
    assert "0 of 2 orders written, 1 bad rows" in re.sub(r" +", " ", text_of(client.get(address)))
    assert "3 Customer_email “nobody” is not an address." in text_of(client.get(address))
    (part,) = Job.objects.filter(task=tasks.import_order_rows.name)
    with as_job("acme", job_id=part.id):
        tasks.import_order_rows(**json.loads(part.payload))
    progress = client.get(f"{address}progress/").json()
    assert progress == {"status": "read, orders are being written", "good_rows": 2, "bad_rows": 1, "written": 2, "done": True}


def test_refused_file_says_why(sign_in: SignIn, as_job: JobRun) -> None:
    client = sign_in()
    address = send(client, b"hello\n").url
    with as_job("acme"):
        tasks.import_orders(json.loads(job().payload)["upload_id"])
    assert "The file was refused. The header in line 1 lacks order_number" in text_of(client.get(address))
    assert client.get(f"{address}progress/").json()["done"]


def test_bad_rows_come_in_pages(sign_in: SignIn) -> None:
    with tenant("acme"):
        upload = UploadFactory(status=OrderUpload.Status.IMPORTING, bad_rows=150)
        RejectedRow.objects.bulk_create(RejectedRow(tenant_id="acme", upload=upload, line=line, reason="x") for line in range(2, 152))
    client = sign_in(Role.VIEWER)
    assert "Page 2 of 2" in text_of(client.get(f"/w/acme/uploads/{upload.pk}/?page=2"))
    assert "Page 1 of 2" in text_of(client.get(f"/w/acme/uploads/{upload.pk}/?page=nonsense"))


@pytest.mark.parametrize("suffix", ["", "progress/"])
def test_upload_of_another_workspace_is_not_found(suffix: str, sign_in: SignIn) -> None:
    with tenant("umbra"):
        upload = UploadFactory(tenant_id="umbra")
    assert sign_in(Role.OWNER).get(f"/w/acme/uploads/{upload.pk}/{suffix}").status_code == 404


# -- reports and jobs


def test_report_is_ordered_and_read(sign_in: SignIn, as_job: JobRun) -> None:
    client = sign_in()
    with tenant("acme"):
        OrderFactory()
    client.post("/w/acme/reports/new/", {"month": "2024-05"})
    with as_job("acme"):
        report_id = tasks.generate_monthly_report(**json.loads(job().payload))
    assert "2024-05 1 1 12.50 EUR" in text_of(client.get("/w/acme/reports/"))
    assert "Total in EUR 12.50" in text_of(client.get(f"/w/acme/reports/{report_id}/"))


@pytest.mark.parametrize("month", ["", "2024", "2024-13", "2024-00", "1999-12", "2024-5", "٢٠٢٤-05", "2024-05-01"])
def test_what_is_no_month_is_refused(month: str, sign_in: SignIn) -> None:
    assert sign_in().post("/w/acme/reports/new/", {"month": month}).status_code == 400
    assert not Job.objects.exists()


def test_jobs_page_shows_the_workspaces_own_jobs(sign_in: SignIn) -> None:
    with tenant("umbra"):
        tasks.generate_monthly_report.enqueue(2024, 5)
    client = sign_in(Role.VIEWER)
    assert "There are no such jobs" in text_of(client.get("/w/acme/jobs/"))
    with tenant("acme"):
        tasks.generate_monthly_report.enqueue(2024, 5)
    assert text_of(client.get("/w/acme/jobs/?status=queued")).count("Make a monthly report") == 1
    assert "There are no such jobs" in text_of(client.get("/w/acme/jobs/?status=dead"))
    assert client.get("/w/acme/jobs/?status=nonsense").status_code == 200


# -- password resets


def test_member_gets_a_link_that_sets_a_password_once(member: Membership, as_job: JobRun) -> None:
    client = Client()
    client.post("/w/acme/password-reset/", {"email": member.user.email.upper()})
    assert (job().queue, job().tenant_id, job().actor_type) == ("interactive", "acme", "system")
    with as_job("acme", job_id=job().id):
        tasks.send_password_reset(**json.loads(job().payload))
    (link,) = re.findall(r"/w/acme/password-reset/\w+/", mail.outbox[0].body)
    assert client.get(link).status_code == 200
    client.post(link, {"new_password1": "battery staple 9", "new_password2": "battery staple 9"})
    assert client.login(username=member.user.username, password="battery staple 9")
    assert client.get(link).status_code == 404


def test_answer_is_the_same_for_an_address_nobody_has(member: Membership) -> None:
    emails = (member.user.email, "nobody@example.com")
    answers = {text_of(Client().post("/w/acme/password-reset/", {"email": email}, follow=True)) for email in emails}
    assert len(answers) == 1
    assert Job.objects.count() == 1


def test_member_of_another_workspace_gets_no_link_from_this_one(member: Membership, umbra: Workspace) -> None:
    Client().post("/w/umbra/password-reset/", {"email": member.user.email})
    assert not Job.objects.exists()


def test_signed_in_member_may_ask_for_a_link_of_another_workspace(member: Membership, umbra: Workspace) -> None:
    MembershipFactory(user__email="eve@example.com", workspace=umbra)
    client = Client()
    client.force_login(member.user)
    client.get("/w/acme/")
    client.post("/w/umbra/password-reset/", {"email": "eve@example.com"})
    assert job().tenant_id == "umbra"


def test_too_many_requests_send_nothing_more(member: Membership) -> None:
    for _ in range(8):
        Client().post("/w/acme/password-reset/", {"email": member.user.email})
    with tenant("acme"):
        assert PasswordReset.objects.count() == Job.objects.count() == 5


def test_link_that_was_never_sent_is_not_found(acme: Workspace) -> None:
    assert Client().get(f"/w/acme/password-reset/{'0' * 64}/").status_code == 404


def test_workspace_is_found_by_its_code(acme: Workspace) -> None:
    assert Client().get("/password-reset/?workspace=acme").url == "/w/acme/password-reset/"
    assert "There is no workspace “nope”" in text_of(Client().get("/password-reset/?workspace=nope"))


# -- webhooks


def test_admin_adds_a_receiver_and_sends_a_test_event(sign_in: SignIn) -> None:
    client = sign_in(Role.ADMIN)
    client.post("/w/acme/webhooks/", {"url": "https://example.com/hook"})
    with tenant("acme"):
        endpoint = WebhookEndpoint.objects.get()
    client.post(reverse("webhook_test", args=["acme", endpoint.pk]))
    assert (job().task, job().queue) == (tasks.deliver_webhook.name, "interactive")
    assert "https://example.com/hook" in text_of(client.get("/w/acme/webhooks/"))


@pytest.mark.parametrize("url", ["", "ftp://example.com/", "javascript:alert(1)", "https://"])
def test_address_that_cannot_be_a_receiver_is_refused(url: str, sign_in: SignIn) -> None:
    assert sign_in(Role.ADMIN).post("/w/acme/webhooks/", {"url": url}).status_code == 400


def test_receiver_of_another_workspace_is_not_found(sign_in: SignIn) -> None:
    with tenant("umbra"):
        endpoint = EndpointFactory(tenant_id="umbra")
    assert sign_in(Role.OWNER).post(f"/w/acme/webhooks/{endpoint.pk}/test/").status_code == 404


# -- every page


def test_pages_hold_no_inline_script_style_or_handler(sign_in: SignIn) -> None:
    client = sign_in(Role.OWNER)
    address = send(client).url
    pages = ["/", "/password-reset/", "/w/acme/password-reset/", address, "/nothing/here/", *(f"/w/acme/{page}" for page in PAGES)]
    for page in pages:
        html = client.get(page).content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", html), page
        assert '<html lang="en">' in html
        assert len(re.findall("<h1[ >]", html)) == 1, page


@pytest.mark.parametrize("file", ["shop/shop.css", "shop/progress.js", "shop/icon.svg"])
def test_static_files_are_served_without_debug(file: str) -> None:
    assert Client().get(f"/static/{file}").status_code == 200
