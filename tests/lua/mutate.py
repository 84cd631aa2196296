"""Are the tests of the scripts worth anything? Changes each number and each comparison in each script, one at a time, and runs them.

    python -m tests.lua.mutate [--only lib/ring] [--from 40] [--property-only] [--examples 25]

For each mutant: the contract suite and the Lua suites; if it lives, the property-based comparison of both brokers. Prints a table, and
exits 1 when a mutant lives that is not in EQUIVALENT. Takes an hour or so; not part of `make test`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sampleproject.settings")

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from django_tenant_queue.brokers.redis import scripts
from django_tenant_queue.brokers.redis.clients import Patience
from embedded import Valkey
from tests import schedules

LUA = Path(scripts.__file__).parent / "lua"
SUITES = (
    *(f"tests/contract/test_broker_{name}.py" for name in ("leases", "limits", "fairness", "epochs", "publish", "sleepers")),
    *(f"tests/lua/test_{name}.py" for name in ("corrupt_entries", "keys", "dying_scripts", "full_memory")),
)
# Each takes seconds, and kills nothing that the others do not.
SLOW = (
    "ten_thousand",
    "one_tenants_backlog",
    "two_thousand",
    "many_capped_rounds",
    "any_number_of_jobs",
    "short_and_long",
    "forgives_no_debt",
)
TOKEN = re.compile(r"--.*|'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?|<=|>=|==|~=|<|>|\S")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "=="}
# The line as changed -> why nothing that can be seen changes. These are not run.
EQUIVALENT = {
    "return tonumber(call('ZRANGE', root .. 'wakeups', 0, 1, 'WITHSCORES')[2] or -1)": "one more is read and not looked at",
    "return tonumber(call('ZRANGE', root .. 'wakeups', 0, 0, 'WITHSCORES')[2] or -2)": "any negative number means none",
    "if full >= taken and visits > 0 then": "serves nobody; lanes of one more queue are forgotten a claim earlier",
    "if full > taken and visits >= 0 then": "serves nobody; lanes of one more queue are forgotten a claim earlier",
    "local more = taken < limit and (visits == 0 or (wakeup > 0 and wakeup <= now))": "no pause ended in 1970",
    "local more = taken < limit and (visits == 0 or (wakeup >= 1 and wakeup <= now))": "no pause ended in 1970",
    "if not meta[2] then return 'lost' end": "the state is written and lost with the epoch",
    "local whole = math.floor(amount / 1001)": "the sum is the same however it is split",
    "local first = call('ZRANGE', queue.ring, 0, 1, 'WITHSCORES')": "one more is read and not looked at",
    "'PX', math.max(60001, math.floor(estimate_keep_us / 1000))) -- the key's own end only frees memory": "frees memory later",
    "'PX', math.max(60000, math.floor(estimate_keep_us / 1001))) -- the key's own end only frees memory": "the value says until when",
    "local SHORTEST_MS = 30001 -- the key's own end only frees memory": "frees memory later",
    "local FIRST_STEP, LAST_STEP, SPARE_ENTRIES = 3, 500, 500": "how far one reads ahead is a matter of speed",
    "local FIRST_STEP, LAST_STEP, SPARE_ENTRIES = 2, 501, 500": "how far one reads ahead is a matter of speed",
    "local FIRST_STEP, LAST_STEP, SPARE_ENTRIES = 2, 500, 501": "a bound: one unreadable entry more in a visit",
    "cursor.step = math.min(5 * cursor.step, LAST_STEP)": "how far one reads ahead is a matter of speed",
    "while cursor.passed <= cursor.most do": "a bound: one unreadable entry more in a visit",
    "round = tonumber(clock[1] or 1), arrivals = tonumber(clock[2] or 1),": "arrival numbers only order",
    "queue.arrivals, queue.changed = queue.arrivals + 2, true": "arrival numbers only order",
    "return entry and #entry == 32 and struct.unpack('>I4', entry, 29) or 1001": "cost of a job that cannot be read: the visit drops it",
    "local entry = not by_time and call('ZRANGE', queue.line .. lane, 0, 1)[1]": "one more is read and not looked at",
    "local due = tonumber(call('ZSCORE', queue.ring, member) or 1)": "a member without a score: no round is below 1",
    "local MOST_JOBS = 501 -- of one visit: more would not fit one command": "501 fit as well; the lane is visited again",
    "if due >= queue.round then queue.round, queue.changed = due, true end": "writes what is there",
    "if still_parked and reason == 'paused' and limits_of(lane).paused_until >= now then": "paused means until later, or without an end",
    "for _, value in ipairs({ lane, call('ZCARD', queue.line .. lane), deficit, remembered and last or 1,": "lanes shown have credit",
}
_DEBT = "deficit + (queue.round - 1 - last) * share) else deficit = 0 end"
EQUIVALENT[f"if deficit <= 0 then deficit = math.min(0, {_DEBT}"] = "nothing owed stays nothing"
EQUIVALENT[f"if deficit < 1 then deficit = math.min(0, {_DEBT}"] = "nothing owed stays nothing"
_MARK = "call('SET', marker_of(request), string.format('%.0f %.0f', limit, now + 2 * lease_us), 'PX',"
EQUIVALENT[f"{_MARK} math.max(SHORTEST_MS, math.floor(lease_us / 501)))"] = "the value says until when"


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    column: int
    old: str
    new: str
    text: str

    def apply(self, source: str) -> str:
        lines = source.split("\n")
        row = lines[self.line]
        assert row[self.column : self.column + len(self.old)] == self.old
        lines[self.line] = row[: self.column] + self.new + row[self.column + len(self.old) :]
        return "\n".join(lines)

    def changed(self) -> str:
        return (self.text[: self.column] + self.new + self.text[self.column + len(self.old) :]).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line + 1}: {self.old} -> {self.new}   {self.text.strip()}"


def mutants() -> Iterator[Mutant]:
    for path in sorted(LUA.rglob("*.lua")):
        name = path.relative_to(LUA).with_suffix("").as_posix()
        for number, text in enumerate(path.read_text().split("\n")):
            for match in TOKEN.finditer(text):
                token = match[0]
                for new in changes(token):
                    yield Mutant(name, number, match.start(), token, new, text)


def changes(token: str) -> list[str]:
    if token in COMPARISONS:
        return [COMPARISONS[token]]
    if token.isdigit():
        return [str(int(token) + 1)]
    return []


@contextlib.contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    real = scripts._read

    def read(name: str) -> str:
        text = real(name)
        return mutant.apply(text) if name == f"{mutant.file}.lua" else text

    scripts._read = read
    scripts.load.cache_clear()
    try:
        yield
    finally:
        scripts._read = real
        scripts.load.cache_clear()


class Server:
    """A private Valkey; a mutant that never ends blocks it for good, so it is replaced when it does not answer."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.valkey = Valkey()
        self.valkey.start()
        os.environ["REDIS_URL"] = self.valkey.url

    def refresh(self) -> None:
        try:
            redis.Redis.from_url(self.valkey.url, socket_timeout=2).flushall()
        except redis.RedisError:
            self.valkey.close()
            self.start()


def killed_by_comparison(examples: int) -> bool:
    from tests.lua.test_twins import MODES, Twins

    for mode in MODES.values():
        machine = type("Mutated", (Twins,), {"mode": mode, "url": os.environ["REDIS_URL"]})
        profile = settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
            report_multiple_bugs=False,
        )
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run_state_machine_as_test(machine, settings=profile)
        except Exception:
            return True
    return False


def killed_by_suites() -> str:
    """The test that failed, empty when none did."""

    class First:
        failed = ""

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

    first = First()
    # Every suite, although only tests on Redis can fail: the ids of the others do not contain "redis" in contract/.
    arguments = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "--timeout=30",
        "-k",
        f"(redis or lua) and not ({' or '.join(SLOW)})",
        *EXTRA,
    ]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*arguments, *[suite for suite in SUITES if Path(suite).exists()]], plugins=[first])
    if code not in (0, 1):
        return f"pytest exited with {code}"
    return first.failed


def name_of(verdict: str) -> str:
    return verdict.split("::")[-1] or "ALIVE"


EXTRA: list[str] = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--property-only", action="store_true")
    parser.add_argument("--examples", type=int, default=25)
    parser.add_argument("--pytest", default="", help="more arguments for pytest")
    options = parser.parse_args()
    EXTRA.extend(options.pytest.split())
    schedules.PATIENCE = Patience(total_seconds=4, attempt_seconds=4)
    server = Server()
    chosen = [mutant for mutant in mutants() if options.only in mutant.file][options.first :]
    if options.first == 0 and (failed := killed_by_suites() or ("comparison" if killed_by_comparison(options.examples) else "")):
        print(f"The unchanged scripts fail already: {failed}")
        return 2
    lived: list[Mutant] = []
    counts = Counter[str]()
    for number, mutant in enumerate(chosen, start=options.first):
        started = time.monotonic()
        if why := EQUIVALENT.get(mutant.changed()):
            counts["equivalent"] += 1
            print(f"{number:4d}   -       {mutant}  <- equivalent: {why}", flush=True)
            continue
        server.refresh()
        with applied(mutant):
            verdict = "" if options.property_only else killed_by_suites()
            if not verdict:
                server.refresh()
                verdict = "comparison" if killed_by_comparison(options.examples) else ""
        if verdict:
            counts["comparison" if verdict == "comparison" else "suites"] += 1
        else:
            lived.append(mutant)
        print(f"{number:4d} {time.monotonic() - started:5.1f} s  {mutant}  <- {verdict.split('::')[-1] or 'ALIVE'}", flush=True)
    server.valkey.close()
    print(f"{len(chosen)} mutants: {dict(counts)}, alive {len(lived)}")
    for mutant in lived:
        print("alive:", mutant)
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
