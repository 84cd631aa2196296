"""One run, in a process of its own: `python -m sampleproject.demo '<RunOptions as JSON>'`.

A process of its own because the settings differ: whoever enqueues must have the lanes and queues that the workers have.
"""

from __future__ import annotations

import os
import sys

import django

from . import interruption
from .events import RunFailed, RunOptions, emit


def main(text: str) -> int:
    interruption.listen()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sampleproject.settings")
    django.setup()
    from .run import Run  # its imports need the settings

    try:
        Run(RunOptions.from_json(text)).run()
    except RunFailed as error:
        emit("failed", sentence=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
