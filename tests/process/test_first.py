from __future__ import annotations

from django_tenant_queue import enqueue
from tests.process.conftest import StartTree
from tests.process.project import tasks


def test_burst_drains_and_exits_zero(start_tree: StartTree) -> None:
    """--burst: everything queued has run when the tree ends, with exit code 0."""
    jobs = [enqueue(tasks.effect, {}, tenant_id=f"t{i % 5}") for i in range(40)]
    tree = start_tree("--burst", "--processes", "2", "--threads", "4")
    code = tree.wait(30)
    print(tree.text())
    for job in jobs:
        job.refresh_from_db()
    assert code == 0
    assert {job.status for job in jobs} == {"succeeded"}
