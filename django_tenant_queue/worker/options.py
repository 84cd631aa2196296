"""What `runworkers` was asked for, as one value that travels to the supervisor and the zygote as JSON. Imports no Django."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

MAX_PROCESSES = 256
MAX_THREADS = 256

# Exit codes of the supervisor, the zygote and a worker process.
DRAINED = 0
CANNOT_START = 1  # a sentence on stderr says why; starting again would not help
HANDED_BACK = 3  # stopped, and jobs that were still running were handed back
NOTHING_LEFT = 10  # of the keepers process, with --burst


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`queues` in strict order; `grace_seconds`: how long running jobs may go on after the first signal."""

    processes: int
    threads: int
    queues: tuple[str, ...]
    grace_seconds: float
    burst: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        values = json.loads(text)
        return cls(**{**values, "queues": tuple(values["queues"])})
