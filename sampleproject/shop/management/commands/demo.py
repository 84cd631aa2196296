"""The noisy-neighbour story, live: first with one line for everybody, then fairly."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from sampleproject.demo import interruption, report, story
from sampleproject.demo.events import RunFailed, RunOptions
from sampleproject.demo.scenario import Scenario
from sampleproject.demo.views import view_of
from sampleproject.shop.imports import ROWS_PER_JOB


class Command(BaseCommand):
    help = (
        "Run the noisy-neighbour story twice: one workspace imports a huge file while 24 others ask for password resets and reports. "
        "Needs DATABASE_URL and REDIS_URL (`make demo` starts servers). Exits with 1 when a check fails."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        usual = Scenario()
        parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else there")
        parser.add_argument("--only", choices=story.LINES, help="one of the two runs")
        parser.add_argument("--rows", type=int, default=usual.rows, help="rows of the file, ten to a job (default %(default)s)")
        parser.add_argument("--resets", type=int, default=usual.resets_each, help="of each quiet workspace (default %(default)s)")
        parser.add_argument("--seconds", type=float, default=usual.seconds, help="over which the requests are spread (default %(default)s)")
        parser.add_argument("--processes", type=int, default=2, help="worker processes (default %(default)s)")
        parser.add_argument("--threads", type=int, default=16, help="threads of each (default %(default)s)")
        parser.add_argument("--timeout", type=float, default=300, help="seconds a run may take (default %(default)s)")

    def handle(self, **options: Any) -> None:
        for name, least in (("rows", 20), ("resets", 1), ("seconds", 1), ("processes", 1), ("threads", 2), ("timeout", 1)):
            if not least <= options[name] <= 10_000_000:
                raise CommandError(f"--{name} {options[name]}: use at least {least}.")
        interruption.listen()
        scenario = Scenario(rows=options["rows"], resets_each=options["resets"], seconds=options["seconds"])
        try:
            results = self._runs(scenario, options)
        except RunFailed as error:
            raise CommandError(str(error)) from None
        checks = report.verdict(results, rows=scenario.rows)
        self._tell(results, checks, as_json=options["json"])
        if not all(check.passed for check in checks):
            sys.exit(1)

    def _runs(self, scenario: Scenario, options: dict[str, Any]) -> report.Results:
        """Progress goes to stderr with --json: stdout is for the object."""
        view = view_of(Console(stderr=options["json"]), scenario.rows // ROWS_PER_JOB)
        results = {}
        for line in [options["only"]] if options["only"] else story.LINES:
            with story.private_directory() as directory:
                chosen = RunOptions(line, directory, asdict(scenario), options["processes"], options["threads"], options["timeout"])
                try:
                    results[line] = story.run(chosen, view)
                finally:
                    view.close()
        return results

    def _tell(self, results: report.Results, checks: list[report.Check], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report.as_json(results)))
            failed = [check.sentence for check in checks if not check.passed]
            self.stderr.write("".join(f"FAIL {sentence}\n" for sentence in failed), ending="")
        else:
            report.show(Console(), results, checks)
