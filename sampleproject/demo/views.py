"""Shows a run while it runs: a bar and a line that change on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

PLAIN_SECONDS = 5.0
HEADINGS = {
    "fifo": "One line for everybody: one lane, one queue",
    "fair": "Fairly: a lane for each workspace, a queue for each class of work",
}


def sentence(facts: dict[str, Any]) -> str:
    """What a moment of a run looks like."""
    resets, oldest = facts["resets_waiting"], facts["oldest_reset_seconds"]
    waiting = f"{resets} password resets wait, the oldest for {oldest:.1f} s" if resets else "no password reset waits"
    left = "the file is being read" if facts["reading"] else f"{facts['import_left']:,} import jobs left"
    return f"{left}; {facts['asked']:,} requests sent; {waiting}"


class PlainView:
    """For pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console, self._told = console, 0.0

    def begin(self, line: str) -> None:
        self._console.print(f"\n{HEADINGS[line]}", style="bold", highlight=False, soft_wrap=True)

    def step(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False, soft_wrap=True)

    def progress(self, facts: dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self._told >= PLAIN_SECONDS or not facts["left"]:
            self._told = now
            self._console.print(f"  {facts['seconds']:5.1f} s  {sentence(facts)}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing is held."""


class LiveView(PlainView):
    """For terminals: a bar of the import that moves, and the sentence below it that changes."""

    def __init__(self, console: Console, jobs: int) -> None:
        super().__init__(console)
        self._jobs = jobs
        self._bar: Progress | None = None

    def begin(self, line: str) -> None:
        self.close()
        super().begin(line)

    def step(self, text: str) -> None:
        self.close()
        super().step(text)

    def progress(self, facts: dict[str, Any]) -> None:
        if self._bar is None:
            columns = TextColumn("  import"), BarColumn(30), TimeElapsedColumn(), TextColumn("{task.description}")
            self._bar = Progress(*columns, console=self._console)
            self._import = self._bar.add_task("", total=self._jobs)
            self._bar.start()
        done = 0 if facts["reading"] else self._jobs - facts["import_left"]
        self._bar.update(self._import, completed=done, description=sentence(facts))

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def view_of(console: Console, jobs: int) -> PlainView:
    return LiveView(console, jobs) if console.is_terminal else PlainView(console)
