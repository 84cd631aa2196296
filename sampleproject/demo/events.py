"""What passes between a run and whoever started it: options in, one JSON object a line out."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunOptions:
    """`line`: "fifo" or "fair". `directory`: for the file, the messages, the workers' output; removed by the caller.
    `scenario`: fields of Scenario."""

    line: str
    directory: str
    scenario: dict[str, Any]
    processes: int
    threads: int
    timeout_seconds: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunOptions:
        return cls(**json.loads(text))


class RunFailed(Exception):
    """The message is what went wrong, for a person."""


def emit(event: str, **facts: Any) -> None:
    """Tell the caller: step, progress, result or failed. When it is gone, this raises BrokenPipeError and the run ends."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()
