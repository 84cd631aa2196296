"""The real scripts on a real server, each test in a namespace of its own."""

from __future__ import annotations

import pytest

from tests.contract.conftest import by_jobs, by_time, make
from tests.schedules import redis_url

__all__ = ["by_jobs", "by_time", "make", "redis_url"]


@pytest.fixture
def kind() -> str:
    return "redis"
