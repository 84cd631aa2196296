"""Quarantine: a job that has killed its process before runs in a fork of its own, so that its next kill hits nobody else.

The thread that has the job asks the zygote for a fork and waits. The request is one datagram with two descriptors: an unnamed file with
the started job as JSON, and the write end of a pipe. The fork has an entry of its own in the shared page: it occupies its slot, says so
through the pipe (now the asking thread's slot is cleared), runs the job, exits; the pipe ends with it, however it dies. Between the two
both slots name the job under one fence, which is harmless: moves are guarded by it. No byte before the end: there is no fork, the job is
handed back.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from .. import logs
from ..brokers.base import Broker
from ..envelope import Envelope
from ..handback import HeldJob, hand_back
from ..models.moves import StartedJob
from .slots import Slot

ACCEPTED = b"+"
REQUEST = b"quarantine"


class QuarantineDoor:
    """The workers' end of the zygote's socket."""

    def __init__(self, asks: socket.socket) -> None:
        self._asks = asks

    def run_apart(self, job: StartedJob, slot: Slot, *, broker: Broker) -> None:
        """Have the job run in a fork of its own; returns when that has ended. Its death is the lease keeper's affair."""
        ends, tells = os.pipe()
        try:
            data = _as_file(to_json(job))
            try:
                socket.send_fds(self._asks, [REQUEST], [data, tells])
            finally:
                os.close(data)
        except OSError as error:
            os.close(ends)
            logs.no_quarantine(job, error)
            self._hand_back(job, slot, broker)
            return
        finally:
            os.close(tells)
        try:
            accepted = os.read(ends, 1) == ACCEPTED
            if not accepted:
                self._hand_back(job, slot, broker)
                return
            slot.clear()
            os.read(ends, 1)  # until it ends
        finally:
            os.close(ends)

    @staticmethod
    def _hand_back(job: StartedJob, slot: Slot, broker: Broker) -> None:
        hand_back([HeldJob(job.id, job.fence, job.token, begun=False)], broker=broker, penalty=False)
        slot.clear()


def receive(asked: socket.socket) -> list[int]:
    """In the zygote: the descriptors of one request (the job's data, the pipe's write end); empty when it was none."""
    message, descriptors, _, _ = socket.recv_fds(asked, 64, 4)
    if message == REQUEST and len(descriptors) == 2:
        return descriptors
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
    return []


def read_job(data: int) -> StartedJob:
    """In the fork: the job to run."""
    with open(data, "rb") as file:
        file.seek(0)
        return from_json(file.read().decode())


def to_json(job: StartedJob) -> str:
    values = {field.name: getattr(job, field.name) for field in fields(job) if field.name != "envelope"}
    return json.dumps({**values, "envelope": asdict(job.envelope)}, default=str)


def from_json(text: str) -> StartedJob:
    values: dict[str, Any] = json.loads(text)
    envelope = values.pop("envelope")
    envelope["job_id"] = UUID(envelope["job_id"])
    envelope["enqueued_at"] = datetime.fromisoformat(envelope["enqueued_at"])
    return StartedJob(envelope=Envelope(**envelope), **values)


def _as_file(text: str) -> int:
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode())
    return descriptor
