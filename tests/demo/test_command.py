"""The command as a user starts it: real workers, a small script, faults made in the database itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MARK = "DEMO_TEST"
SMALL = ("--rows", "200", "--resets", "2", "--seconds", "3", "--processes", "1", "--threads", "4", "--timeout", "100")
# The database forgets one effect row: a job has succeeded, and its work was not kept.
FORGET_ONE = """
CREATE FUNCTION forget_one() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN DELETE FROM shop_jobeffect WHERE id = NEW.id; RETURN NULL; END $$;
CREATE TRIGGER forget_one AFTER INSERT ON shop_jobeffect FOR EACH ROW WHEN (NEW.kind = 'file') EXECUTE FUNCTION forget_one()"""


@pytest.fixture
def demo(transactional_db: None, tmp_path: Path) -> Iterator[Any]:
    """Start the command on the test's database."""
    database = connection.settings_dict
    url = f"postgres://{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}/{database['NAME']}"
    environment = {**os.environ, "DATABASE_URL": url, "TMPDIR": str(tmp_path), MARK: tmp_path.name}
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "manage.py", "demo", *SMALL, *arguments]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate()


def processes_of(mark: str) -> list[str]:
    """Command lines of the processes whose environment has the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}\0".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.timeout(150)
def test_a_lost_effect_makes_the_command_exit_with_1(demo: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(FORGET_ONE)
    try:
        process = demo("--json", "--only", "fair")
        out, err = process.communicate(timeout=140)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION forget_one CASCADE")
    told = json.loads(out)
    assert {name: told[name] for name in ("lost", "duplicated", "wrong_tenant", "dead_letters")} == {
        "lost": 1,
        "duplicated": 0,
        "wrong_tenant": 0,
        "dead_letters": 4,
    }, err
    assert told["fair"]["quiet"]["interactive"]["n"] == 48
    assert "1 jobs succeeded and left no effect" in err
    assert process.returncode == 1


@pytest.mark.timeout(150)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_leaves_no_process_and_no_file(demo: Any, tmp_path: Path, number: signal.Signals) -> None:
    process = demo("--seconds", "60")
    eventually(lambda: "uploads 200 orders" in process.stdout.readline(), within=60, what="the story begins")
    assert any("supervisor" in line for line in processes_of(tmp_path.name))
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    eventually(lambda: not processes_of(tmp_path.name), within=5, what="no process is left")
    assert not list(tmp_path.glob("shop-demo-*"))
