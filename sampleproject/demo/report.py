"""What the runs came to: the verdict, one JSON object, or a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

RATIO_LOW, RATIO_HIGH = 0.8, 1.25
TIMES_FASTER = 20
ROWS_THAT_MEASURE = 50_000  # below that a run is over too soon for its rates to mean something
AIM_MS = 250  # on two busy cores; told, and no reason to fail on a smaller machine
TITLES = {"fifo": "one line", "fair": "fair"}

Results = Mapping[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Check:
    sentence: str
    passed: bool


def verdict(results: Results, *, rows: int) -> list[Check]:
    """Every check with its sentence. The demo exits with 1 when one has not passed."""
    made = []
    for line, result in results.items():
        for kind in ("lost", "duplicated", "wrong_tenant"):
            said = "".join(f"; {f['count']} {f['sentence']}" for f in result["findings"] if f["kind"] == kind)
            made.append(Check(f"{TITLES[line]}: {kind.replace('_', ' ')} {result[kind]}{said}", result[kind] == 0))
        letters, poisons = result["dead_letters"], result["poisons"]
        made.append(Check(f"{TITLES[line]}: dead letters {letters}, of {poisons} poison jobs", letters == poisons))
    if set(results) == {"fifo", "fair"} and rows >= ROWS_THAT_MEASURE:
        made += _compared(results["fifo"], results["fair"])
    return made


def _compared(fifo: dict[str, Any], fair: dict[str, Any]) -> list[Check]:
    ratio = fair["drain_per_s"] / fifo["drain_per_s"]
    slow, fast = (_waits(result, "quiet", "interactive")["p99_ms"] for result in (fifo, fair))
    return [
        Check(f"drain rate, fair by one line: {ratio:.2f}, between {RATIO_LOW} and {RATIO_HIGH}", RATIO_LOW <= ratio <= RATIO_HIGH),
        Check(
            f"quiet interactive p99, fair {fast:,.0f} ms of {slow:,.0f} ms in one line: at most 1/{TIMES_FASTER}",
            fast * TIMES_FASTER <= slow,
        ),
    ]


def as_json(results: Results) -> dict[str, Any]:
    """The one object that `--json` prints. A run that was not asked for is null."""
    names = ("jobs", "lost", "duplicated", "wrong_tenant", "dead_letters")
    sums = {name: sum(result[name] for result in results.values()) for name in names}
    return {line: _run_json(results[line]) if line in results else None for line in TITLES} | sums


def _run_json(result: dict[str, Any]) -> dict[str, Any]:
    waits: dict[str, Any] = {"quiet": {}, "noisy": {}}
    for entry in result["waits"]:
        waits[entry["party"]][entry["queue"]] = {name: _rounded(entry[name]) for name in ("n", "p50_ms", "p99_ms", "max_ms")}
    numbers = {name: _rounded(result[name]) for name in ("drain_per_s", "drain_seconds", "idle_slots", "slots")}
    return numbers | waits


def _rounded(value: float) -> float:
    return round(value, 1)


def _waits(result: dict[str, Any], party: str, queue: str) -> dict[str, Any]:
    found = [entry for entry in result["waits"] if (entry["party"], entry["queue"]) == (party, queue)]
    return found[0] if found else {"n": 0, "p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}


def show(console: Console, results: Results, checks: list[Check]) -> None:
    """The table of waits, the drain rates, the checks."""
    console.print()
    console.print(_table(results))
    for line, result in results.items():
        console.print(
            f"{TITLES[line]:>8}: {result['drain_per_s']:,.0f} jobs/s until all was done, in {result['drain_seconds']:.1f} s; "
            f"{result['idle_slots']:.1f} of {result['slots']} slots idle",
            highlight=False,
            soft_wrap=True,
        )
    if "fair" in results and (p99 := _waits(results["fair"], "quiet", "interactive")["p99_ms"]) > AIM_MS:
        console.print(
            f"The quiet interactive p99 of {p99:,.0f} ms is above the {AIM_MS} ms aimed at on two cores.", highlight=False, soft_wrap=True
        )
    console.print()
    for check in checks:
        console.print(f"[{'green]ok  ' if check.passed else 'bold red]FAIL'}[/] {check.sentence}", highlight=False, soft_wrap=True)


def _table(results: Results) -> Table:
    table = Table(title="Wait from commit to the start of the body, ms")
    table.add_column("who")
    table.add_column("queue")
    table.add_column("jobs", justify="right")
    for line in results:
        table.add_column(f"{TITLES[line]} p50", justify="right")
        table.add_column(f"{TITLES[line]} p99", justify="right")
    for party, queue in (("quiet", "interactive"), ("quiet", "default"), ("noisy", "bulk")):
        found = [_waits(result, party, queue) for result in results.values()]
        numbers = [f"{entry[name]:,.0f}" for entry in found for name in ("p50_ms", "p99_ms")]
        table.add_row(party, queue, f"{found[-1]['n']:,}", *numbers)
    return table
