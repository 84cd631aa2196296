"""`runworkers` as a command: every wrong option or environment gets a sentence, and exit code 1."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tests.process.conftest import StartTree


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--processes", "0"], "--processes 0: it must be from 1 to 256."),
        (["--threads", "1000"], "--threads 1000: it must be from 1 to 256."),
        (["--grace", "-1"], "--grace -1.0: it must be seconds, from 0 to 86400."),
        (["--grace", "nan"], "--grace nan: it must be seconds, from 0 to 86400."),
        (["--queues", "bulky"], "--queues bulky: there is no queue 'bulky'; TENANT_QUEUE['QUEUES'] has interactive, default, bulk."),
        (["--queues", ","], "--queues ,: it names no queue; TENANT_QUEUE['QUEUES'] has interactive, default, bulk."),
    ],
)
def test_wrong_option_gets_a_sentence(namespace: str, arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError) as refused:
        call_command("runworkers", *arguments)
    assert str(refused.value) == sentence


def test_old_postgres_gets_a_sentence(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_tenant_queue.management.commands.runworkers.LOWEST_POSTGRES", 99)
    with pytest.raises(CommandError, match=r"Workers need PostgreSQL 99 or newer; DATABASES\['default'\] is version \d+\."):
        call_command("runworkers")


def test_role_that_row_security_does_not_bind_gets_a_sentence(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """I06: whether the role is such a one is asked in context/role.py and tested there."""
    monkeypatch.setattr(
        "django_tenant_queue.management.commands.runworkers.database_role_problem", lambda connection: "The role is a superuser."
    )
    with pytest.raises(CommandError, match="The role is a superuser"):
        call_command("runworkers")


def test_an_owner_without_force_is_warned_at_the_start(start_tree: StartTree) -> None:
    """I06: a table of the role's own with row-level security that does not bind it."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE process_loose (tenant_id text)")
        cursor.execute("ALTER TABLE process_loose ENABLE ROW LEVEL SECURITY")
    try:
        tree = start_tree("--processes", "1", "--threads", "1", "--burst", by_command=True)
        assert tree.wait(60) == 0, tree.text()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE process_loose")
    assert "process_loose, whose row-level security does not bind its owner" in tree.text()


def test_missing_redis_gets_a_sentence(start_tree: StartTree) -> None:
    tree = start_tree(by_command=True, redis_url="redis://127.0.0.1:1/0")
    assert tree.wait(30) == 1
    assert "CommandError: " in tree.text()
    assert "Traceback" not in tree.text()


def test_help_has_examples_signals_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("runworkers", "--help")
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(part in text for part in ("runworkers --burst", "SIGTERM, SIGINT", "handed back"))


def test_thread_started_at_import_is_refused(start_tree: StartTree) -> None:
    """B13: a fork of a process with threads can hang; the sentence names the thread."""
    tree = start_tree(env={"PROCESS_THREAD_AT_IMPORT": "ticker"})
    assert tree.wait(30) == 1
    assert "started threads (ticker)" in tree.text()
