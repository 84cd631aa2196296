"""Failpoints: off they cost nothing, on they fire where, when and as often as asked, and count across processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from django_tenant_queue import failpoints
from django_tenant_queue.failpoints import FailpointFired, Rule, active, as_text, fired, hit, parse

PROGRAM = "from django_tenant_queue.failpoints import hit; hit('H1', task='shop.a', job_id=7); hit('D1', task='shop.b'); print('alive')"


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, "")


def in_another_process(*rules: Rule, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, failpoints.VARIABLE: as_text(rules)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_off_a_place_does_nothing() -> None:
    assert hit("H1", task="shop.a") is None


def test_it_raises_only_inside_the_block() -> None:
    with active("E2", "raise"), pytest.raises(FailpointFired, match="E2: enqueue committed and not published"):
        hit("E2")
    assert hit("E2") is None


def test_a_callable_gets_the_facts() -> None:
    seen: list[dict[str, Any]] = []
    with active("D1", lambda **facts: seen.append(facts)):
        hit("D1", job_id=1)
        hit("D2", job_id=2)
    assert seen == [{"job_id": 1}]


def test_an_inner_block_gives_the_place_back() -> None:
    seen: list[str] = []
    with active("D1", lambda: seen.append("outer")):
        with active("D1", lambda: seen.append("inner")):
            hit("D1")
        hit("D1")
    assert seen == ["inner", "outer"]


def test_only_the_named_task_and_the_nth_hit_fire(tmp_path: Path) -> None:
    with active("H1", lambda **_: None, task="shop.a", nth=2, counters=tmp_path):
        for task in ("shop.b", "shop.a", "shop.b", "shop.a", "shop.a"):
            hit("H1", task=task)
    assert fired(tmp_path, "H1") == [{"pid": os.getpid(), "task": "shop.a"}]


def test_exit9_kills_the_process_at_the_place_and_is_counted(tmp_path: Path) -> None:
    done = in_another_process(Rule("H1", "exit9", counters=tmp_path))
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    [facts] = fired(tmp_path, "H1")
    assert (facts["task"], facts["job_id"]) == ("shop.a", 7)


def test_once_means_once_over_all_processes(tmp_path: Path) -> None:
    codes = [in_another_process(Rule("H1", "exit9", nth=1, counters=tmp_path)).returncode for _ in range(3)]
    assert codes == [-signal.SIGKILL, 0, 0]
    assert len(fired(tmp_path, "H1")) == 1


def test_simultaneous_processes_count_each_hit_once(tmp_path: Path) -> None:
    environment = {**os.environ, failpoints.VARIABLE: as_text([Rule("M2", "sleep(0)", counters=tmp_path)])}
    program = "from django_tenant_queue.failpoints import hit\nfor n in range(50): hit('M2', n=n)"
    processes = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(4)]
    assert [process.wait(30) for process in processes] == [0] * 4
    assert len(fired(tmp_path, "M2")) == 200


def test_stop_stops_the_process_until_it_is_continued(tmp_path: Path) -> None:
    environment = {**os.environ, failpoints.VARIABLE: as_text([Rule("H1", "stop", counters=tmp_path)])}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=30)[0] == b"alive\n"


def test_rules_survive_the_environment(tmp_path: Path) -> None:
    rules = [Rule("H1", "sleep(0.5)", nth=3, task="shop.a", counters=tmp_path / "with, a comma"), Rule("S3", "raise")]
    assert parse(as_text(rules)) == rules
    assert parse("H1=exit9:once,/tmp/x") == [Rule("H1", "exit9", nth=1, counters=Path("/tmp/x"))]
    assert parse("") == []


@pytest.mark.parametrize("text", ["H1", "H1=explode", "H9=raise", "H1=raise:twice", "H1=raise:nth=x", "H1=sleep(x)"])
def test_what_cannot_be_read_is_refused_at_import(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
    environment = {**os.environ, failpoints.VARIABLE: text}
    assert subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=False, timeout=30).returncode == 1


def test_a_site_in_production_cannot_switch_them_on(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.delenv(failpoints.VARIABLE)
    with pytest.raises(RuntimeError, match="for tests"), active("E1", "raise"):
        pass
    settings.DEBUG = True
    with active("E1", "raise"), pytest.raises(FailpointFired):
        hit("E1")


def test_the_module_needs_no_django() -> None:
    program = "import sys; from django_tenant_queue import failpoints; print('django' in sys.modules)"
    assert in_another_process(program=program).stdout == "False\n"
