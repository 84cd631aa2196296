"""Every log line of the app, worded in one place: one event, one line. Success of a job costs no line.

Lines carry job, task, tenant and correlation id as text and as `extra` fields; never a payload, never a secret.
"""

from __future__ import annotations

import logging
import time
from typing import Any

logger = logging.getLogger("django_tenant_queue")


def one_line(value: object, limit: int = 500) -> str:
    """Text that cannot break out of its line: control characters are escaped, length is bounded."""
    text = str(value)
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


class Once:
    """Lets one line through per key and `seconds`: a state that lasts must not flood the log."""

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self._last: dict[str, float] = {}

    def __call__(self, key: str) -> bool:
        now = time.monotonic()
        if now - self._last.get(key, -self.seconds) < self.seconds:
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[key] = now
        return True


_once = Once()


def _job_line(level: int, event: str, job: Any, sentence: str) -> None:
    envelope = job.envelope
    facts = {
        "event": event,
        "job_id": str(envelope.job_id),
        "task": one_line(envelope.task),
        "tenant_id": one_line(envelope.tenant_id),
        "correlation_id": one_line(envelope.correlation_id),
    }
    where = " ".join(f"{name}={value}" for name, value in facts.items() if name != "event")
    logger.log(level, "%s %s", one_line(sentence), where, extra=facts)


# -- the door and the schedule


def publish_put_off(error: BaseException) -> None:
    if _once("publish"):
        logger.warning("publish is left to the relay: %s", one_line(error))


def schedule_trouble(who: str, error: BaseException) -> None:
    if _once(f"schedule {who} {type(error).__name__}"):
        logger.error("%s cannot use the schedule and tries again: %s: %s", who, type(error).__name__, one_line(error))


def ledger_trouble(who: str, error: BaseException) -> None:
    if _once(f"ledger {who} {type(error).__name__}"):
        logger.error("%s cannot use the ledger and tries again: %s: %s", who, type(error).__name__, one_line(error))


def stray_entry(job_id: object, why: str) -> None:
    if _once(f"stray {why}"):
        logger.warning("a claimed entry was not runnable and was dropped: %s job_id=%s", one_line(why), one_line(job_id))


def lane_mismatch(job_id: object, lane: str, row_lane: str) -> None:
    if _once("lane mismatch"):
        logger.error(
            "security: an entry of the schedule names another lane than its row; the row wins job_id=%s entry=%s row=%s",
            one_line(job_id), one_line(lane, 100), one_line(row_lane, 100),
        )  # fmt: skip


def lost_lease(job_id: object, when: str) -> None:
    logger.warning("lease lost %s job_id=%s", when, one_line(job_id))


# -- one job


def fence_lost(job: Any) -> None:
    _job_line(logging.WARNING, "fence_lost", job, "this run's result is thrown away: another run has taken the job over")


def failed(job: Any, error_class: str, wait_seconds: float) -> None:
    _job_line(logging.WARNING, "failed", job, f"failed with {error_class}, runs again in {wait_seconds:.1f} s")


def infrastructure(job: Any, error_class: str, wait_seconds: float) -> None:
    _job_line(
        logging.WARNING,
        "infrastructure",
        job,
        f"interrupted by {error_class}, not counted as a failure, runs again in {wait_seconds:.1f} s",
    )


def dead_letter(job: Any, reason: str, error_class: str) -> None:
    _job_line(logging.ERROR, "dead_letter", job, f"dead letter ({reason}): {error_class}")


def cancelled(job: Any, reason: str) -> None:
    _job_line(logging.INFO, "cancelled", job, f"cancelled: {reason}")


def callback_failed(job: Any, error: BaseException) -> None:
    _job_line(logging.ERROR, "callback_failed", job, f"committed, but an on_commit callback raised {type(error).__name__}")


def deferred(job: Any, why: str) -> None:
    if _once(f"deferred {why}"):
        _job_line(logging.ERROR, "deferred", job, f"put back with a delay: {why}")


def suspects(count: int, how: str) -> None:
    logger.error("a worker process died (%s) with %d begun jobs; each runs again in a process of its own", how, count)


def crashed(job_id: object, how: str, dead: bool) -> None:
    logger.error(
        "a job killed its process (%s)%s job_id=%s", how, "; dead letter" if dead else "; runs again in a process of its own", job_id
    )


# -- keepers


def keeper_failing(name: str, error: BaseException, *, unexpected: bool) -> None:
    """`unexpected`: neither store is to blame, so the traceback is wanted."""
    trace = error if unexpected else None
    logger.error("keeper %s is failing and tries again: %s: %s", name, type(error).__name__, one_line(error), exc_info=trace)


def keeper_recovered(name: str, failures: int, seconds: float) -> None:
    logger.warning("keeper %s works again after %d failures in %.1f s", name, failures, seconds)


def rebuild_begins(epoch: str, replaces: str | None) -> None:
    why = (
        f"it replaces {replaces}, which was rolled back, left half-built or filled from another ledger" if replaces else "Redis holds none"
    )
    logger.warning("the schedule is rebuilt from the ledger: epoch %s begins, %s", epoch, why)


def rebuild_ends(epoch: str, leases: int, offered: int) -> None:
    logger.warning(
        "the schedule is rebuilt: epoch %s holds %d leases of running jobs, %d queued jobs were offered to it", epoch, leases, offered
    )


# -- the process tree


def speak() -> None:
    """For a project that configures no logging: INFO and above of this app to stderr, one line each."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def tree_ready(processes: int, threads: int, queues: str) -> None:
    logger.info("workers are ready: %d processes x %d threads, queues %s", processes, threads, queues)


def process_ended(role: str, pid: int, how: str) -> None:
    logger.error("a process has died: %s, pid %d, %s", role, pid, how)


def fork_failed(role: str, error: BaseException) -> None:
    logger.error("cannot start %s and tries again: %s", role, one_line(error))


def supervisor_gone() -> None:
    logger.error("the supervisor has died: draining")


def process_broken(role: str, error: BaseException) -> None:
    """Ours, not a job's: the traceback is wanted."""
    logger.error("%s has failed: %s: %s", role, type(error).__name__, one_line(error), exc_info=error)


def killing(pid: int, why: str) -> None:
    logger.error("killing process %d: %s", pid, why)


def handed_back(count: int, why: str) -> None:
    logger.warning("%d jobs handed back: %s", count, why)


def timed_out(job: Any) -> None:
    _job_line(logging.ERROR, "timed_out", job, "ran longer than its timeout; its process was killed")


def no_quarantine(job: Any, error: BaseException) -> None:
    _job_line(logging.WARNING, "no_quarantine", job, f"handed back, no process of its own could be had: {one_line(error)}")


def receiver_failed(signal_name: str, receiver: object, error: BaseException) -> None:
    logger.error("a receiver of %s raised %s: %s", signal_name, type(error).__name__, one_line(receiver))
