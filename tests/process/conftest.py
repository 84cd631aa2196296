"""Trees of real processes on the test's own database and namespace."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from django_tenant_queue.brokers.current import get_broker
from django_tenant_queue.conf import get_conf
from django_tenant_queue.management.commands import runworkers
from tests.process.project import tasks  # noqa: F401 - registers the tasks here, too
from tests.process.tree import Tree, environment
from tests.redis_servers import delete_namespace
from tests.schedules import opened

EFFECT = """
CREATE TABLE IF NOT EXISTS process_effect (
    id bigserial PRIMARY KEY, job_id uuid NOT NULL, fence bigint NOT NULL, tenant text, seen text, pid int NOT NULL)"""

StartTree = Callable[..., Tree]


def _read(arguments: Sequence[str]) -> str:
    """The command line as the command reads it and passes it on."""
    given = vars(runworkers.Command().create_parser("manage.py", "runworkers").parse_args(arguments))
    return runworkers.options_of(get_conf(), given).to_json()


@pytest.fixture
def namespace(transactional_db: None, settings: Any) -> Iterator[str]:
    """This test's own schedule, and an empty table of effects."""
    name = f"process-{secrets.token_hex(6)}"
    settings.TENANT_QUEUE = {"NAMESPACE": name, "RELAY_SECONDS": 0.1}
    with connection.cursor() as cursor:
        cursor.execute(EFFECT)
        cursor.execute("DELETE FROM process_effect")
    opened(get_broker())
    yield name
    delete_namespace(name)


@pytest.fixture
def sample_redis_url() -> str:
    return str(django_settings.REDIS_URL)


@pytest.fixture
def start_tree(namespace: str, tmp_path: Path, settings: Any) -> Iterator[StartTree]:
    """Start trees with `runworkers` arguments; keyword arguments change TENANT_QUEUE, `env` the environment.

    `by_command`: through the command, as a user would; otherwise what the command becomes, which spares loading Django once more."""
    trees: list[Tree] = []

    def start(
        *arguments: str, env: dict[str, str] | None = None, redis_url: str | None = None, by_command: bool = False, **options: Any
    ) -> Tree:
        settings.TENANT_QUEUE = {**settings.TENANT_QUEUE, **options}
        url = redis_url or django_settings.REDIS_URL
        variables = environment(connection.settings_dict, url, settings.TENANT_QUEUE, django_settings.SECRET_KEY)
        notes = tmp_path / "notes"
        notes.mkdir(exist_ok=True)
        command = (
            ["tests.process.project", "runworkers", *arguments]
            if by_command
            else ["django_tenant_queue.worker.supervisor", _read(arguments)]
        )
        trees.append(Tree(command, {**variables, "PROCESS_NOTES": str(notes), **(env or {})}, tmp_path / f"tree-{len(trees)}.log", notes))
        return trees[-1]

    yield start
    for tree in trees:
        tree.stop()
        print(f"--- log of the tree {' '.join(tree.arguments)}\n{tree.text()}")  # shown when the test fails
