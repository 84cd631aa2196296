"""`manage.py runworkers`: check that workers can work here, then become the supervisor of a tree of processes that run jobs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.db import connections

from ...brokers.current import get_broker
from ...conf import Conf, get_conf
from ...context.role import database_role_problem, owner_without_force
from ...exceptions import TenantQueueError
from ...models import Job
from ...worker.options import MAX_PROCESSES, MAX_THREADS, WorkerOptions

LOWEST_POSTGRES = 14
EXAMPLES = """
examples:
  manage.py runworkers                               2 processes x 8 threads, all queues
  manage.py runworkers --processes 4 --threads 4     more processes for work that computes
  manage.py runworkers --queues interactive          a fleet that serves one queue
  manage.py runworkers --burst                       run what there is, then exit

signals to the process that this command becomes:
  SIGTERM, SIGINT   drain: claim nothing more, let running jobs end within --grace; a second one: hand them back at once
  SIGHUP            drain, however often
  SIGQUIT           hand running jobs back at once

exit codes:
  0   everything that was begun has ended (with --burst: and nothing is left)
  1   could not start; a sentence on stderr says why
  3   jobs that were still running were handed back; they run again elsewhere
"""


class Command(BaseCommand):
    help = "Run jobs: worker processes and the keepers of the schedule, under one supervisor."

    def create_parser(self, *args: Any, **options: Any) -> CommandParser:
        return super().create_parser(*args, **options, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--processes", type=int, default=2, metavar="N", help="worker processes (default 2)")
        parser.add_argument("--threads", type=int, default=8, metavar="N", help="jobs at a time in each process (default 8)")
        parser.add_argument("--queues", metavar="A,B", help="serve only these queues (default: all), in the order of the setting QUEUES")
        parser.add_argument(
            "--grace", type=float, metavar="SECONDS", help="how long running jobs may go on when told to stop (default: GRACE_SECONDS)"
        )
        parser.add_argument(
            "--burst", action="store_true", help="exit when no job of these queues is queued, running or waiting for a retry"
        )

    def handle(self, *args: Any, **given: Any) -> None:
        if not sys.platform.startswith("linux"):
            raise CommandError(f"runworkers needs Linux (process descriptors, memory files); this is {sys.platform}.")
        try:
            conf = get_conf()
            options = options_of(conf, given)
            get_broker().check()
            if warning := _check_ledger(conf):
                self.stderr.write(f"warning: {warning}")
        except TenantQueueError as error:
            raise CommandError(str(error)) from error
        get_broker().close()
        connections.close_all()
        _become_supervisor(options)


def options_of(conf: Conf, given: dict[str, Any]) -> WorkerOptions:
    """Raises CommandError with a sentence for the first option that is out of range."""
    for name, most in (("processes", MAX_PROCESSES), ("threads", MAX_THREADS)):
        if not 1 <= given[name] <= most:
            raise CommandError(f"--{name} {given[name]}: it must be from 1 to {most}.")
    grace = conf.grace_seconds if given["grace"] is None else given["grace"]
    if not 0 <= grace <= 86_400:
        raise CommandError(f"--grace {grace}: it must be seconds, from 0 to 86400.")
    return WorkerOptions(given["processes"], given["threads"], _queues(conf, given["queues"]), grace, given["burst"])


def _queues(conf: Conf, wanted: str | None) -> tuple[str, ...]:
    if wanted is None:
        return conf.queue_names
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    unknown = [name for name in names if name not in conf.queue_names]
    if unknown or not names:
        what = f"there is no queue {unknown[0]!r}" if unknown else "it names no queue"
        raise CommandError(f"--queues {wanted}: {what}; TENANT_QUEUE['QUEUES'] has {', '.join(conf.queue_names)}.")
    return tuple(name for name in conf.queue_names if name in names)


def _check_ledger(conf: Conf) -> str | None:
    """-> a warning, if there is one. Raises CommandError when workers cannot work with this database."""
    connection = connections[conf.database]
    if connection.vendor != "postgresql":
        raise CommandError(
            f"Workers need PostgreSQL {LOWEST_POSTGRES} or newer; DATABASES[{conf.database!r}] is {connection.display_name}."
        )
    try:
        version = connection.pg_version // 10_000  # type: ignore[attr-defined]
        if version < LOWEST_POSTGRES:
            raise CommandError(f"Workers need PostgreSQL {LOWEST_POSTGRES} or newer; DATABASES[{conf.database!r}] is version {version}.")
        if Job._meta.db_table not in connection.introspection.table_names():
            raise CommandError(f"The database {conf.database!r} has no table {Job._meta.db_table}: run `manage.py migrate` first.")
        problem, warning = database_role_problem(connection), owner_without_force(connection)
    except DatabaseError as error:
        raise CommandError(f"The database {conf.database!r} cannot be used: {str(error).strip()}") from error
    if problem:
        raise CommandError(problem)
    return warning


def _become_supervisor(options: WorkerOptions) -> None:
    """In place of this process, so that whoever started it signals the supervisor. Does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ["PYTHONPATH"] = os.pathsep.join(_import_path())
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, "-P", "-m", "django_tenant_queue.worker.supervisor", options.to_json()]
    os.execv(sys.executable, command)


def _import_path() -> list[str]:
    """Where this process imports from, beyond what the interpreter finds by itself: the directory of manage.py, --pythonpath."""
    own = {str(Path(path).resolve()) for path in sysconfig.get_paths().values()}
    found = [str(Path(path or ".").resolve()) for path in sys.path if not path.endswith(".zip")]
    return [path for path in dict.fromkeys(found) if path not in own and not path.endswith("lib-dynload")]
