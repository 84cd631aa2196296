"""The shared page: which job each slot of each process holds, still readable when the process is dead.

One anonymous shared mapping, made by the zygote before it forks. Writers, one per field:
- a slot's record: the thread that owns the slot (its claimer before the thread has the job);
- an entry's phase, pid, exit status: the zygote; back to free: the lease keeper, when the entry's jobs are handed back;
- doomed: whoever is about to kill the process, before the kill; timed out: the lease keeper, before the kill;
- the order: the zygote.

No reader takes a half-written record for a whole one: a record is written beside the valid one, then one byte says which is valid,
and a checksum guards against stores seen out of order. A process that dies while writing leaves the record it had before.
"""

from __future__ import annotations

import mmap
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

TOKEN_BYTES = 40
BEGIN_WITHIN_SECONDS = 60.0  # a job occupied and not begun for so long is stuck: its lease is renewed no more

_HEADER = struct.Struct("<B7xd")  # order, when (monotonic)
_ENTRY_BYTES = 16  # phase, kind, doomed, reaped, status i32, pid i32, generation u32
_RECORD = struct.Struct("<BB40s16sqd")  # state, token length, token, job id, fence, deadline
_CHECKSUM = struct.Struct("<I")
_RECORD_BYTES = _RECORD.size + _CHECKSUM.size
_SLOT_BYTES = 8 + 2 * _RECORD_BYTES  # which record is valid, 3 unused, mark of a time-out u32, two records


class Order(IntEnum):
    """What the tree is told. It only grows."""

    RUN = 0
    DRAIN = 1  # claim nothing more, let running jobs end within the grace
    STOP = 2  # hand back at once
    CLOSE = 3  # the workers have ended: the keepers may


class Phase(IntEnum):
    FREE = 0
    STARTING = 1  # reserved by the zygote, about to be forked
    LIVE = 2  # forked; dead or alive


class Kind(IntEnum):
    WORKER = 0
    QUARANTINE = 1


class SlotState(IntEnum):
    FREE = 0
    OCCUPIED = 1  # its job is started in the ledger
    BEGUN = 2  # its body has begun


@dataclass(frozen=True, slots=True)
class SlotReading:
    """What a slot holds. `deadline`: monotonic seconds; of the body when begun, else until when it must have begun."""

    job_id: UUID
    token: str
    fence: int
    deadline: float
    begun: bool
    timed_out: bool


class Slot:
    """One thread's place in the page. Only its own process writes it, one thread at a time."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        self._memory, self._offset = memory, offset

    def occupy(self, job_id: UUID, token: str, fence: int) -> None:
        """Its job is started in the ledger under this fence. Raises ValueError for a token that does not fit."""
        self._write(SlotState.OCCUPIED, token.encode("ascii"), job_id.bytes, fence, time.monotonic() + BEGIN_WITHIN_SECONDS)

    def begin(self, deadline: float) -> None:
        """The body begins now and must have ended at `deadline` (monotonic seconds)."""
        _, length, token, job_id, fence, _ = _RECORD.unpack(self._valid()[: _RECORD.size])
        self._write(SlotState.BEGUN, token[:length], job_id, fence, deadline)

    def clear(self) -> None:
        self._write(SlotState.FREE, b"", bytes(16), 0, 0.0)

    def read(self) -> SlotReading | None:
        """What it holds, None when free."""
        for _ in range(10):  # the owner may overwrite a record while it is read; it cannot do so for ever
            raw = self._valid()
            if zlib.crc32(raw[: _RECORD.size]) == _CHECKSUM.unpack_from(raw, _RECORD.size)[0]:
                state, length, token, job_id, fence, deadline = _RECORD.unpack_from(raw)
                if state == SlotState.FREE:
                    return None
                text = token[:length].decode("ascii")
                return SlotReading(UUID(bytes=job_id), text, fence, deadline, state == SlotState.BEGUN, self._mark() == self._mark_of(raw))
        return None

    def time_out(self, reading: SlotReading) -> None:
        """Mark the job just read as past its deadline; the mark does not outlive the record."""
        raw = self._valid()
        if _RECORD.unpack_from(raw)[4] == reading.fence and raw[42:58] == reading.job_id.bytes:
            _CHECKSUM.pack_into(self._memory, self._offset + 4, self._mark_of(raw))

    def reset(self) -> None:
        """Free, whatever was there: for an entry without a process."""
        self._memory[self._offset : self._offset + _SLOT_BYTES] = bytes(_SLOT_BYTES)
        self.clear()

    def _write(self, state: SlotState, token: bytes, job_id: bytes, fence: int, deadline: float) -> None:
        if len(token) > TOKEN_BYTES:
            raise ValueError(f"A claim token has at most {TOKEN_BYTES} bytes; {token!r} has {len(token)}.")
        record = _RECORD.pack(state, len(token), token, job_id, fence, deadline)
        other = 1 - self._memory[self._offset]
        at = self._offset + 8 + other * _RECORD_BYTES
        self._memory[at : at + _RECORD_BYTES] = record + _CHECKSUM.pack(zlib.crc32(record))
        self._memory[self._offset] = other  # last: from here on the new record is the valid one

    def _valid(self) -> bytes:
        at = self._offset + 8 + self._memory[self._offset] * _RECORD_BYTES
        return self._memory[at : at + _RECORD_BYTES]

    def _mark(self) -> int:
        return int(_CHECKSUM.unpack_from(self._memory, self._offset + 4)[0])

    @staticmethod
    def _mark_of(raw: bytes) -> int:
        return zlib.crc32(raw[: _RECORD.size]) or 1  # 0: no mark


class Entry:
    """One process of the page: a worker with all its slots, or a quarantine with one."""

    def __init__(self, memory: mmap.mmap, offset: int, kind: Kind, slots: int) -> None:
        self._memory, self._offset, self.kind = memory, offset, kind
        self.slots: Sequence[Slot] = [Slot(memory, offset + _ENTRY_BYTES + i * _SLOT_BYTES) for i in range(slots)]
        memory[offset + 1] = kind
        self._empty()

    def __repr__(self) -> str:
        return f"<Entry {self.kind.name} {self.phase.name} pid={self.pid}>"

    @property
    def phase(self) -> Phase:
        return Phase(self._memory[self._offset])

    @property
    def doomed(self) -> bool:
        return bool(self._memory[self._offset + 2])

    @property
    def status(self) -> int | None:
        """As os.waitpid gave it; None while the process is not reaped."""
        return self._int(4) if self._memory[self._offset + 3] else None

    @property
    def pid(self) -> int:
        return self._int(8)

    @property
    def generation(self) -> int:
        return self._int(12)

    def reserve(self) -> None:
        """By the zygote, before the fork."""
        self._empty()
        struct.pack_into("<I", self._memory, self._offset + 12, (self.generation + 1) & 0x7FFF_FFFF)
        self._memory[self._offset] = Phase.STARTING

    def live(self, pid: int) -> None:
        """Forked. By parent and child alike, whichever comes first; a second time changes nothing."""
        struct.pack_into("<i", self._memory, self._offset + 8, pid)
        self._memory[self._offset] = Phase.LIVE

    def doom(self) -> None:
        """Whoever reads this death later shall know that it was ours."""
        self._memory[self._offset + 2] = 1

    def reaped(self, status: int) -> None:
        """By the zygote after waitpid; the flag comes last."""
        struct.pack_into("<i", self._memory, self._offset + 4, status)
        self._memory[self._offset + 3] = 1

    def free(self) -> None:
        """Its process is dead and its jobs are handed back."""
        self._memory[self._offset] = Phase.FREE

    def held(self) -> list[SlotReading]:
        return [reading for slot in self.slots if (reading := slot.read()) is not None]

    def _empty(self) -> None:
        self._memory[self._offset] = Phase.FREE
        self._memory[self._offset + 2 : self._offset + 12] = bytes(10)  # doomed, reaped, status, pid; the generation stays
        for slot in self.slots:
            slot.reset()

    def _int(self, at: int) -> int:
        return int(struct.unpack_from("<i", self._memory, self._offset + at)[0])


class Page:
    """`workers` entries of `threads` slots each, then `quarantines` entries of one slot."""

    def __init__(self, *, workers: int, threads: int, quarantines: int) -> None:
        shapes = [(Kind.WORKER, threads)] * workers + [(Kind.QUARANTINE, 1)] * quarantines
        sizes = [_ENTRY_BYTES + slots * _SLOT_BYTES for _, slots in shapes]
        self._memory = mmap.mmap(-1, _HEADER.size + sum(sizes))
        self.entries: list[Entry] = []
        offset = _HEADER.size
        for (kind, slots), size in zip(shapes, sizes, strict=True):
            self.entries.append(Entry(self._memory, offset, kind, slots))
            offset += size

    @property
    def order(self) -> Order:
        return Order(self._memory[0])

    @property
    def ordered_at(self) -> float:
        """Monotonic seconds of the first order to drain."""
        return float(_HEADER.unpack_from(self._memory)[1])

    def tell(self, order: Order) -> None:
        """By the zygote. An order that is not further than the last one changes nothing."""
        if order > self.order:
            if self.order == Order.RUN:
                struct.pack_into("<d", self._memory, 8, time.monotonic())
            self._memory[0] = order

    def reserve(self, kind: Kind) -> Entry | None:
        """A free entry, reserved; None while there is none."""
        for entry in self.entries:
            if entry.kind is kind and entry.phase is Phase.FREE:
                entry.reserve()
                return entry
        return None

    def live(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.phase is Phase.LIVE)
