"""A task that takes its process down, as a native library with a bug does. For the demo and the tests."""

from __future__ import annotations

import ctypes

from django_tenant_queue import task

from .queues import DEFAULT


@task(queue=DEFAULT)
def decode_logo_natively(image_hex: str) -> None:
    """Hand the image to a C decoder that dereferences NULL. Kills the process by SIGSEGV; no `except` can help."""
    bytes.fromhex(image_hex)
    ctypes.string_at(0)
