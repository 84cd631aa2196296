"""Reads the size of a workspace's logo out of a PNG file."""

from __future__ import annotations

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER_BYTES = 33  # signature, length, "IHDR", 13 bytes, checksum


class BrokenImage(ValueError):
    """The file is not a PNG, or its header is damaged."""


def png_size(image: bytes) -> tuple[int, int]:
    """Width and height in pixels. Raises BrokenImage."""
    if not image.startswith(SIGNATURE):
        raise BrokenImage("The logo is not a PNG file: upload one that begins with the PNG signature.")
    if len(image) < HEADER_BYTES:
        raise BrokenImage(f"The logo ends after {len(image)} bytes, inside its header: upload the whole file.")
    header, (checksum,) = image[12:29], struct.unpack(">I", image[29:33])
    if header[:4] != b"IHDR" or zlib.crc32(header) != checksum:
        raise BrokenImage("The logo's header does not match its checksum: the file was damaged on its way.")
    width, height = struct.unpack(">II", header[4:12])
    return width, height
