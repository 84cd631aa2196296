"""One run of the story: its steps in order. Stops its workers however it ends."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from django_tenant_queue import tenant_context, tenant_transaction
from django_tenant_queue.brokers.current import get_broker
from sampleproject.shop.models import OrderUpload
from sampleproject.shop.sample_orders import sample_rows, write_orders

from . import checks, interruption, world
from .events import RunFailed, RunOptions, emit
from .load import Asked, Load, upload
from .measure import measure
from .receiver import Receiver
from .scenario import ROWS_PER_BAD_ROW, Ask, Kind, Scenario
from .unfinished import progress, unfinished
from .workers import Workers, write_no_core_files
from .world import World

PROGRESS_SECONDS = 1.0
LOOK_SECONDS = 0.1
READY_SECONDS = 60


class Run:
    """Raises RunFailed, from whichever step."""

    def __init__(self, options: RunOptions) -> None:
        self.options, self.scenario = options, Scenario(**options.scenario)
        self.directory = Path(options.directory)
        self.run_id = f"{options.line}-{secrets.token_hex(3)}"
        self.slots = options.processes * options.threads
        self._end = time.monotonic() + options.timeout_seconds

    def run(self) -> None:
        write_no_core_files()
        emit("step", text="making tables, workspaces and the orders file")
        call_command("migrate", verbosity=0, interactive=False)
        refuse_other_work()
        file = self._write_file()
        with Receiver() as receiver:
            shop = world.build(self.scenario, self.run_id, receiver.url)
            _tidy()
            asked, upload_id = self._with_workers(shop, file)
        emit("step", text="checking what was written")
        self._report(shop, asked, upload_id, receiver.taken)

    def _write_file(self) -> Path:
        path = self.directory / "orders.csv"
        with path.open("wb") as file:
            write_orders(file, self.scenario.rows, bad_every=self._bad_every)
        return path

    @property
    def _bad_every(self) -> int:
        return min(ROWS_PER_BAD_ROW, self.scenario.rows // 2)

    # -- the story

    def _with_workers(self, shop: World, file: Path) -> tuple[list[Asked], int]:
        """-> (what was asked for, upload id), when all of it is done and the workers have ended with status 0."""
        emit("step", text="starting the workers")
        workers = Workers(self.options.processes, self.options.threads, self.directory / "workers.log")
        load = Load(self.scenario.asks(), shop)
        with _stopped_at_the_end(workers, load):
            self._warm_up(load, workers)
            emit("step", text=f"{shop.noisy.workspace.name} uploads {self.scenario.rows:,} orders")
            upload_id, asked = upload(shop, file)
            self._until_read(shop, upload_id, workers)
            _analyze()
            emit("step", text="the file has become jobs; the others go about their day")
            load.start()
            self._until_done(load, workers)
        return [*load.asked, asked], upload_id

    def _warm_up(self, load: Load, workers: Workers) -> None:
        """Two reports for each thread, not timed: when they are made, the workers are up and connected. The same in both runs."""
        sent, ready = False, time.monotonic() + READY_SECONDS
        for now in self._looks(workers):
            if not sent and _schedule_is_open():
                for i in range(2 * self.slots):
                    load.send(Ask(0.0, i % self.scenario.quiet_workspaces, Kind.REPORT, i), timed=False)
                sent = True
            elif sent and not unfinished():
                return
            if now > ready:
                raise RunFailed(f"The workers did no job within {READY_SECONDS} s. Their last lines:\n{workers.last_lines()}")

    def _until_read(self, shop: World, upload_id: int, workers: Workers) -> None:
        """Until the import's jobs are queued, all in one transaction: from then on there is something to wait behind."""
        for _ in self._looks(workers):
            with tenant_context(shop.noisy.workspace_id), tenant_transaction():
                if OrderUpload.objects.get(pk=upload_id).is_read:
                    return

    def _until_done(self, load: Load, workers: Workers) -> None:
        begin, told = time.monotonic(), 0.0
        for now in self._looks(workers):
            if load.errors:
                raise RunFailed(f"A request could not be sent: {type(load.errors[0]).__name__}: {load.errors[0]}")
            if now - told < PROGRESS_SECONDS:
                continue
            over = load.done  # asked before the look: what is sent after it is seen by the next look
            left, told = unfinished(), now
            emit("progress", seconds=round(now - begin, 1), **progress(left, len(load.asked)))
            if over and not left:
                return

    def _looks(self, workers: Workers) -> Iterator[float]:
        """Times to look at. Raises RunFailed when the run takes too long or the workers are gone."""
        while (now := time.monotonic()) <= self._end:
            interruption.check()
            workers.check_alive()
            yield now
            time.sleep(LOOK_SECONDS)
        left = ", ".join(f"{count} {task}" for task, (count, _) in unfinished().items())
        raise RunFailed(
            f"The run was not over after {self.options.timeout_seconds:.0f} s (--timeout); unfinished: {left or 'requests to send'}. "
            f"The workers' last lines:\n{workers.last_lines()}"
        )

    # -- afterwards

    def _report(self, shop: World, asked: list[Asked], upload_id: int, received: list[tuple[str, str]]) -> None:
        noisy = shop.noisy.workspace_id
        rows = sample_rows(self.scenario.rows, bad_every=self._bad_every)
        expected = checks.Expected(shop.tenants, asked, noisy, upload_id, rows, mailed_jobs(), received)
        found = checks.check(connection, expected)
        measured = measure(connection, tenants=shop.tenants, noisy=noisy, asked=asked, slots=self.slots)
        waits = [{"party": party, "queue": queue, **asdict(numbers)} for (party, queue), numbers in measured.waits.items()]
        emit(
            "result", findings=[asdict(finding) for finding in found], **checks.totals(found), waits=waits, jobs=measured.jobs,
            dead_letters=measured.dead_letters, poisons=self.scenario.poisons, drain_per_s=measured.drain_per_s,
            drain_seconds=measured.drain_seconds, idle_slots=measured.idle_slots, slots=self.slots,
        )  # fmt: skip


@contextmanager
def _stopped_at_the_end(workers: Workers, load: Load) -> Iterator[None]:
    """However the block ends, the workers are stopped; after a good end they must have drained with status 0."""
    try:
        yield
    except BaseException:
        load.stop()
        workers.stop()
        raise
    if (status := workers.stop()) != 0:
        raise RunFailed(f"The workers ended with status {status} after SIGTERM instead of 0. Their last lines:\n{workers.last_lines()}")


def _schedule_is_open() -> bool:
    """Whether the workers' relay has opened this run's namespace."""
    epoch = get_broker().read_epoch()
    return epoch is not None and not epoch.rebuilding


def refuse_other_work() -> None:
    """Raises RunFailed when the ledger holds somebody else's work: our workers would run it, and it would disturb what is measured."""
    if left := unfinished():
        raise RunFailed(
            f"The ledger holds {sum(count for count, _ in left.values())} unfinished jobs of somebody else: "
            "give the demo a database of its own (DATABASE_URL), or leave that unset and `make demo` starts one."
        )


def _analyze() -> None:
    """What autovacuum would do within a minute: plans made while the tables were almost empty read them whole for every job."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE tenant_queue_job, shop_orderupload")


def _tidy() -> None:
    """Both runs begin with fresh statistics and without what the run before left to vacuum."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) tenant_queue_job, shop_order, shop_jobeffect, shop_passwordreset")


def mailed_jobs() -> list[str]:
    """The ids of the jobs whose messages lie in the directory that stands for the mail server: from their Message-ID."""
    directory = Path(settings.EMAIL_FILE_PATH)
    messages = (path.read_text() for path in directory.iterdir()) if directory.is_dir() else ()
    return [job_id for text in messages for job_id in re.findall(r"^Message-ID: <([0-9a-f-]{36})@", text, re.MULTILINE)]
