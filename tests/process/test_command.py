"""`runworkers` as a command: every wrong option or environment gets a sentence, and exit code 1."""

from __future__ import annotations

import pytest

from tests.process.conftest import StartTree


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--processes", "0"], "--processes 0: it must be from 1 to 256."),
        (["--threads", "1000"], "--threads 1000: it must be from 1 to 256."),
        (["--grace", "-1"], "--grace -1.0: it must be seconds, from 0 to 86400."),
        (
            ["--queues", "interactive,bulky"],
            "--queues interactive,bulky: there is no queue 'bulky'; TENANT_QUEUE['QUEUES'] has interactive, default, bulk.",
        ),
    ],
)
def test_wrong_option_gets_a_sentence(start_tree: StartTree, arguments: list[str], sentence: str) -> None:
    tree = start_tree(*arguments)
    assert tree.wait(30) == 1
    assert sentence in tree.text()
    assert "Traceback" not in tree.text()


def test_missing_redis_gets_a_sentence(start_tree: StartTree) -> None:
    tree = start_tree(redis_url="redis://127.0.0.1:1/0")
    assert tree.wait(30) == 1
    assert "CommandError: " in tree.text()
    assert "Traceback" not in tree.text()


def test_help_has_examples_signals_and_exit_codes(start_tree: StartTree) -> None:
    tree = start_tree("--help")
    assert tree.wait(30) == 0
    for part in ("runworkers --burst", "SIGTERM, SIGINT", "handed back"):
        assert part in tree.text()


def test_thread_started_at_import_is_refused(start_tree: StartTree) -> None:
    """B13: a fork of a process with threads can hang; the sentence names the thread."""
    tree = start_tree(env={"PROCESS_THREAD_AT_IMPORT": "ticker"})
    assert tree.wait(30) == 1
    assert "started threads (ticker)" in tree.text()
