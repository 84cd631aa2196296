"""`python -m embedded run [--] COMMAND...`: run a command with REDIS_URL and DATABASE_URL set to servers that end with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from embedded.errors import EmbeddedError
from embedded.place import RUN_DIRECTORY, clean
from embedded.runner import Options, run


def main(arguments: list[str] | None = None) -> int:
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.verb == "clean":
            print(f"Removed what {clean(chosen.run_dir)} killed run(s) had left in {chosen.run_dir}.")
            return 0
        command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
        if not command:
            raise EmbeddedError("There is no command to run: write `python -m embedded run -- COMMAND...`.")
        return run(command, _options(chosen))
    except EmbeddedError as error:
        print(f"embedded: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m embedded", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run", help="REDIS_URL and DATABASE_URL, where set, are used; what is not set is started privately")
    runs.add_argument("--redis-port", type=int, help="default: a free one")
    runs.add_argument("--postgres-port", type=int, help="default: a free one")
    runs.add_argument("--redis-server", type=Path, help="the server program to start instead of the wheel's Valkey")
    runs.add_argument("--postgres-bin", type=Path, help="the directory of `postgres` and `initdb` to use instead of the wheel's")
    runs.add_argument("--no-fsync", action="store_true", help="Postgres does not wait for the disk; for test runs only")
    runs.add_argument("command", nargs=argparse.REMAINDER)
    cleans = verbs.add_parser("clean", help="remove what killed runs left behind")
    for verb in (runs, cleans):
        verb.add_argument(
            "--run-dir", type=Path, default=RUN_DIRECTORY, help="where the servers' data is kept (default: .run of the checkout)"
        )
    return parser


def _options(chosen: argparse.Namespace) -> Options:
    return Options(
        redis_port=chosen.redis_port,
        redis_server=chosen.redis_server,
        postgres_port=chosen.postgres_port,
        postgres_programs=chosen.postgres_bin,
        fsync=not chosen.no_fsync,
        run_directory=chosen.run_dir.absolute(),
    )


if __name__ == "__main__":
    sys.exit(main())
