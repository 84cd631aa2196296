"""The zygote: loads Django and the project once, opens no connection, starts no thread, and becomes the parent of the tree.

Run as `python -m django_tenant_queue.worker.zygote OPTIONS CONTROL_FD` by the supervisor.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

import django

from .. import logs
from .linux import name_process
from .options import WorkerOptions
from .orders import ignore_signals


def main(arguments: list[str]) -> int:
    options, control = WorkerOptions.from_json(arguments[0]), socket.socket(fileno=int(arguments[1]))
    name_process("zygote")
    ignore_signals()
    os.set_inheritable(control.fileno(), False)
    django.setup()
    logs.speak()
    from .tree import Tree  # what the children need, once here instead of once in each; needs Django set up

    gc.collect()
    gc.freeze()  # what is loaded now stays shared with the children: no collection touches it
    return Tree(options, control).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
