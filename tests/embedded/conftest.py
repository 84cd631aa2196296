"""Directories for runs: an ordinary one that everybody can pass through."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def run_directory() -> Iterator[Path]:
    """Not below pytest's own temporary directory: that one is 0700, which is a case of its own."""
    parent = Path(tempfile.mkdtemp(prefix="embedded-"))
    parent.chmod(0o755)
    yield parent / ".run"
    shutil.rmtree(parent, ignore_errors=True)
