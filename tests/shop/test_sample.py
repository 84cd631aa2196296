"""The sample's own files: migrations on SQLite, orders files that are what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

from sampleproject.shop.csv_orders import BadRow, OrderRow, read_orders
from sampleproject.shop.sample_orders import sample_rows, write_orders

ROOT = Path(__file__).resolve().parents[2]


def test_sample_file_holds_what_its_writer_says() -> None:
    file = BytesIO()
    written = write_orders(file, 2500, bad_every=40, seed=3)
    file.seek(0)
    rows = list(read_orders(file))
    assert sum(isinstance(row, OrderRow) for row in rows) == written.good_rows
    assert sum(isinstance(row, BadRow) for row in rows) == written.bad_rows
    assert [row.line for row in rows] == [row.line for row in sample_rows(2500, bad_every=40, seed=3)]


def test_migrations_work_on_sqlite(tmp_path: Path) -> None:
    environment = {**os.environ, "DATABASE_URL": f"sqlite:///{tmp_path}/shop.sqlite3"}
    for arguments in (["migrate", "-v0"], ["migrate", "-v0", "shop", "zero"]):
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
