"""A script that dies undoes nothing: whatever it had written, no job is lost, held twice or stuck, and no lane sleeps for ever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from django_tenant_queue.brokers.base import LaneLimits, Lease, Published
from django_tenant_queue.brokers.redis import scripts
from django_tenant_queue.exceptions import VerbFailed
from tests.schedules import Schedule, job_id, publication

READS = "HGET HMGET HEXISTS HLEN HKEYS HGETALL ZCARD ZRANGE ZSCORE ZRANGEBYSCORE SMEMBERS GET EXISTS TIME SCAN PUBLISH"
# Stands in for redis.call: the n-th command that writes is refused, and the script ends there.
DYING = """
local reads, writes, last = {{}}, 0, {last}
for name in string.gmatch('{reads}', '%u+') do reads[name] = true end
local function dying(name, ...)
  if not reads[name] then
    if writes == last then error('died before write ' .. writes .. ': ' .. name) end
    writes = writes + 1
  end
  return redis.call(name, ...)
end
"""


def dies_before_write(monkeypatch: pytest.MonkeyPatch, verb: str, number: int) -> None:
    real = scripts.load(verb)
    text = DYING.format(last=number, reads=READS) + real.text.replace("local call = redis.call", "local call = dying")
    assert "local call = dying" in text
    dying = scripts.Script(verb, text, "0" * 40)
    load = scripts.load
    monkeypatch.setattr(scripts, "load", lambda name: dying if name == verb else load(name))


def publish(schedule: Schedule) -> None:
    schedule.broker.publish([publication(job, lane) for job, lane in zip(JOBS, "AABBC", strict=True)])


def claim(schedule: Schedule) -> None:
    schedule.clock.advance(1)  # a pause ends
    schedule.take(3, "default", "bulk")


def on_leases(verb: str, *args: Any) -> Callable[[Schedule], None]:
    return lambda schedule: getattr(schedule.broker, verb)(schedule.broker.state().leases, *args)


def reap(schedule: Schedule) -> None:
    schedule.clock.advance(9)
    schedule.broker.reap(10)


def set_limits(schedule: Schedule) -> None:
    schedule.broker.set_limits({"A": LaneLimits(weight=3000), "D": LaneLimits(paused_until_us=-1, weight=2000), "E": LaneLimits(weight=10)})


def restore(schedule: Schedule) -> None:
    schedule.broker.restore_leases(
        [Lease(f"t.{n}", job, "default", "A", 1, 1000, 1000) for n, job in enumerate(JOBS)], epoch=schedule.broker.read_epoch().id
    )


JOBS = [job_id() for _ in range(5)]
VERBS: dict[str, Callable[[Schedule], None]] = {
    "publish": publish,
    "claim": claim,
    "ack": on_leases("ack"),
    "release": on_leases("release"),
    "postpone": on_leases("postpone", 1.0),
    "renew": on_leases("renew"),
    "reap": reap,
    "set_limits": set_limits,
    "restore_leases": restore,
}


def busy(schedule: Schedule) -> dict[UUID, str]:
    """Lanes waiting, running, capped, paused with and without an end, in debt; job id -> lane."""
    jobs: dict[UUID, str] = {}
    schedule.limit("A", max_running=1)
    schedule.limit("D", paused_until_us=-1)
    schedule.limit("E", paused_until_us=schedule.clock.us + 500_000)
    for lane in "ADEF":
        for queue in ("default", "default", "bulk"):
            jobs[schedule.put(lane, queue=queue)[0]] = lane
    schedule.take(3, "default", "bulk")
    return jobs


@pytest.mark.parametrize("verb", VERBS)
def test_every_prefix_of_a_scripts_writes_is_safe(by_time: Schedule, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in itertools.count():
        begin_again(by_time, number)
        jobs = busy(by_time)
        if not died(by_time, verb, number, monkeypatch):
            break
        check_recovers(by_time, jobs)
    assert number >= 1


def died(schedule: Schedule, verb: str, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the verb with a script that dies before its n-th write; False when it has no more than n."""
    with monkeypatch.context() as patch:
        dies_before_write(patch, verb, number)
        try:
            VERBS[verb](schedule)
        except VerbFailed as failure:
            if "died before write" not in str(failure):
                raise
            return True
    return False


def begin_again(schedule: Schedule, number: int) -> None:
    current = schedule.broker.read_epoch()
    schedule.broker.begin_rebuild(f"run{number}", replaces=current.id if current else None)
    schedule.broker.open_epoch(f"run{number}")


def check_recovers(schedule: Schedule, jobs: dict[UUID, str]) -> None:
    """What happens next without anybody's help but the reaper's: all lanes that may run are emptied; then every id may be published."""
    for _ in range(2):
        schedule.clock.advance(100)
        schedule.broker.reap(100)
    take_everything(schedule)
    waiting = {lane for (_, lane), state in schedule.broker.state().lanes.items() if state.waiting}
    assert waiting == {"D"}, "a lane that may run is never visited again"
    schedule.limit("D")
    take_everything(schedule)
    everything = {**jobs, **dict.fromkeys(JOBS, "B")}
    words = schedule.broker.publish([publication(job, lane) for job, lane in everything.items()])
    assert set(words) == {Published.PUBLISHED}, "an id in no lane and under no lease is refused for ever"
    assert take_everything(schedule) == set(everything)
    state = schedule.broker.state()
    assert not state.leases
    assert not any(lane.waiting or lane.running or lane.parked for lane in state.lanes.values())


def take_everything(schedule: Schedule) -> set[UUID]:
    taken: set[UUID] = set()
    while claims := schedule.take(4, "default", "bulk"):
        held = schedule.broker.state().leases.values()
        assert len(set(held)) == len(held), "one job under two leases"
        taken |= {claim.job_id for claim in claims}
        schedule.broker.ack(claim.token for claim in claims)
    return taken
