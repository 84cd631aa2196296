"""One run, in a process of its own: `python -m sampleproject.demo.one_run '<options as JSON>'`.

A process of its own because the settings differ: whoever enqueues must have the lanes and queues that the workers have. It says what
happens as one JSON object a line on stdout (`event`: step, progress, result or failed), and stops its workers however it ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PROGRESS_SECONDS = 1.0
LOOK_SECONDS = 0.1
READY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`directory`: for the file, the messages, the workers' output; removed by the caller. `scenario`: fields of Scenario."""

    line: str
    directory: str
    scenario: dict[str, Any]
    processes: int
    threads: int
    timeout_seconds: float


class RunFailed(Exception):
    """The message is what went wrong, for a person."""


def main() -> int:
    options = RunOptions(**json.loads(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    import django

    django.setup()
    from .load import UploadRefused
    from .workers import WorkersEnded

    try:
        Run(options).run()
    except (RunFailed, UploadRefused, WorkersEnded) as error:
        emit("failed", sentence=str(error))
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is the stopping
    sys.exit(128 + number)


def emit(event: str, **facts: Any) -> None:
    """Tell the caller. When it is gone, this raises BrokenPipeError and the run ends."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


class Run:
    """Its steps, in order."""

    def __init__(self, options: RunOptions) -> None:
        from .scenario import Scenario

        self.options, self.scenario = options, Scenario(**options.scenario)
        self.directory = Path(options.directory)
        self.run_id = f"{options.line}-{secrets.token_hex(3)}"
        self._end = time.monotonic() + options.timeout_seconds

    def run(self) -> None:
        from django.db import connection

        from . import checks, measure, world
        from .load import Load
        from .receiver import Receiver
        from .workers import Workers, write_no_core_files

        write_no_core_files()
        emit("step", text="making tables, 25 workspaces and the orders file")
        _migrate()
        refuse_other_work()
        file = self._write_file()
        with Receiver() as receiver:
            shop = world.build(self.scenario, self.run_id, receiver.url)
            _tidy()
            workers = Workers(self.options.processes, self.options.threads, self.directory / "workers.log")
            load = Load(self.scenario.asks(), shop)
            with _stopped_at_the_end(workers, load):
                self._warm_up(load, workers)
                upload_id, asked = self._work(load, workers, shop, file)
        emit("step", text="checking what was written")
        everything = [*load.asked, asked]
        slots = self.options.processes * self.options.threads
        found = checks.check(connection, self._expected(shop, upload_id, everything, receiver.taken))
        measured = measure.measure(connection, tenants=shop.tenants, noisy=shop.noisy.workspace_id, asked=everything, slots=slots)
        waits = [{"party": party, "queue": queue, **asdict(numbers)} for (party, queue), numbers in measured.waits.items()]
        emit(
            "result", findings=[asdict(finding) for finding in found], totals=checks.totals(found), slots=slots,
            measured={**asdict(measured), "waits": waits}, poisons=self.scenario.poisons, rows=self.scenario.rows,
            late_ms=round(1000 * max(load.late_seconds, default=0.0)),
        )  # fmt: skip

    # -- before the clock starts

    def _write_file(self) -> Path:
        from sampleproject.shop.sample_orders import write_orders

        path = self.directory / "orders.csv"
        with path.open("wb") as file:
            write_orders(file, self.scenario.rows, bad_every=self._bad_every)
        return path

    @property
    def _bad_every(self) -> int:
        from .scenario import ROWS_PER_BAD_ROW

        return min(ROWS_PER_BAD_ROW, self.scenario.rows // 2)

    def _warm_up(self, load: Any, workers: Any) -> None:
        """Two reports for each thread, not timed: when they are made, the workers are up and connected. The same in both runs."""
        from .scenario import Ask, Kind

        emit("step", text="starting the workers")
        for i in range(2 * self.options.processes * self.options.threads):
            load.send(Ask(0.0, i % self.scenario.quiet_workspaces, Kind.REPORT, i), timed=False)
        ready = time.monotonic() + READY_SECONDS
        for _ in self._looks(workers):
            if not unfinished():
                return
            if time.monotonic() > ready:
                raise RunFailed(f"The workers ran nothing within {READY_SECONDS} s. Their last lines:\n{workers.last_lines()}")

    # -- the story

    def _work(self, load: Any, workers: Any, shop: Any, file: Path) -> tuple[int, Any]:
        from .load import upload

        emit("step", text=f"{shop.noisy.workspace.name} uploads {self.scenario.rows:,} orders; the others go about their day")
        begin = time.monotonic()
        load.start()
        upload_id, asked = upload(shop, file)
        told = 0.0
        for now in self._looks(workers):
            if load.errors:
                raise RunFailed(f"A request could not be sent: {type(load.errors[0]).__name__}: {load.errors[0]}")
            if now - told >= PROGRESS_SECONDS or load.done:
                left = unfinished()
                emit("progress", seconds=round(now - begin, 1), **progress(left, len(load.asked)))
                told = now
                if load.done and not left:
                    return upload_id, asked
        raise AssertionError

    def _looks(self, workers: Any) -> Iterator[float]:
        """Times to look at. Raises RunFailed when the run takes too long, WorkersEnded when the workers are gone."""
        while True:
            now = time.monotonic()
            workers.check_alive()
            if now > self._end:
                left = ", ".join(f"{count} {task}" for task, (count, _) in unfinished().items())
                raise RunFailed(
                    f"The run was not over after {self.options.timeout_seconds:.0f} s (--timeout); unfinished: {left or 'requests to send'}. "
                    f"The workers' last lines:\n{workers.last_lines()}"
                )
            yield now
            time.sleep(LOOK_SECONDS)

    # -- afterwards

    def _expected(self, shop: Any, upload_id: int, asked: Sequence[Any], received: Sequence[tuple[str, str]]) -> Any:
        from sampleproject.shop.sample_orders import sample_rows

        from .checks import Expected

        rows = sample_rows(self.scenario.rows, bad_every=self._bad_every)
        return Expected(shop.tenants, asked, shop.noisy.workspace_id, upload_id, rows, mailed_jobs(), received)


@contextmanager
def _stopped_at_the_end(workers: Any, load: Any) -> Iterator[None]:
    """However the block ends, the workers are stopped; after a good end they must have drained with status 0."""
    try:
        yield
    except BaseException:
        load.stop()
        workers.stop()
        raise
    status = workers.stop()
    if status != 0:
        raise RunFailed(f"The workers ended with status {status} after SIGTERM instead of 0. Their last lines:\n{workers.last_lines()}")


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)


def refuse_other_work() -> None:
    """Raises RunFailed when the ledger holds somebody else's work: our workers would run it, and it would disturb what is measured."""
    left = unfinished()
    if left:
        raise RunFailed(
            f"The ledger holds {sum(count for count, _ in left.values())} unfinished jobs of somebody else: "
            "give the demo a database of its own (DATABASE_URL), or leave that unset and it starts one."
        )


def _tidy() -> None:
    """Both runs begin with fresh statistics and without what the run before left to vacuum."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) tenant_queue_job, shop_order, shop_jobeffect, shop_passwordreset")


def unfinished() -> dict[str, tuple[int, float]]:
    """Task -> (jobs that have not come to an end, seconds since the oldest was asked for). Two statements in one, each with its index."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT task, count(*), extract(epoch FROM now() - min(enqueued_at))::float8 FROM ("
            "SELECT task, enqueued_at FROM tenant_queue_job WHERE finished_at IS NULL AND xid IS NOT NULL UNION ALL "
            "SELECT task, enqueued_at FROM tenant_queue_job WHERE finished_at IS NULL AND xid IS NULL) unfinished GROUP BY task"
        )
        return {task: (count, age) for task, count, age in cursor.fetchall()}


def progress(left: dict[str, tuple[int, float]], asked: int) -> dict[str, Any]:
    """What a person wants to see while it runs."""
    from sampleproject.shop.tasks import import_order_rows, import_orders, send_password_reset

    resets, oldest = left.get(send_password_reset.name, (0, 0.0))
    return {
        "asked": asked,
        "reading": import_orders.name in left,
        "import_left": left.get(import_order_rows.name, (0, 0.0))[0],
        "left": sum(count for count, _ in left.values()),
        "resets_waiting": resets,
        "oldest_reset_seconds": round(oldest, 1) if resets else 0.0,
    }


def mailed_jobs() -> list[str]:
    """The ids of the jobs whose messages lie in the directory that stands for the mail server: from their Message-ID."""
    import re

    from django.conf import settings

    found: list[str] = []
    directory = Path(settings.EMAIL_FILE_PATH)
    for path in directory.iterdir() if directory.is_dir() else ():
        found += re.findall(r"^Message-ID: <([0-9a-f-]{36})@", path.read_text(), re.MULTILINE)
    return found


RunFunction = Callable[[RunOptions], Iterator[dict[str, Any]]]

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sampleproject.settings")
    sys.exit(main())
