"""Every test that the README and docs/guarantees.md name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = [
    (page, *match)
    for page in ("README.md", "docs/guarantees.md")
    for match in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / page).read_text())
]


@pytest.mark.parametrize(("page", "path", "name"), NAMED)
def test_a_named_test_exists(page: str, path: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.M), f"{page} names {path}::{name}, which does not exist"


def test_the_guarantee_table_is_not_empty() -> None:
    assert len(NAMED) > 20
