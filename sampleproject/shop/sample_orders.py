"""Writes order files as customers send them: for the demo, for looking at the pages, for tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, timedelta
from typing import BinaryIO

HEADER = "Order Number;Customer Email;Note;Placed On;Amount;Currency\r\n"
FIRST_DAY = date(2024, 1, 1)
DAYS = 366


@dataclass(frozen=True, slots=True)
class Written:
    """What a written file holds."""

    good_rows: int
    bad_rows: int


def write_orders(file: BinaryIO, rows: int, *, bad_every: int = 0, seed: int = 0) -> Written:
    """Write `rows` rows, every `bad_every`-th of them bad (0: none), with BOM, semicolons, decimal commas, quoted notes with line ends
    and some empty lines. The same arguments give the same file; all days are in 2024.
    """
    random_numbers = random.Random(seed)
    file.write(b"\xef\xbb\xbf" + HEADER.encode())
    bad_rows = 0
    for number in range(1, rows + 1):
        bad = bool(bad_every) and number % bad_every == 0
        bad_rows += bad
        file.write(_row(number, random_numbers, bad).encode())
    return Written(rows - bad_rows, bad_rows)


def _row(number: int, random_numbers: random.Random, bad: bool) -> str:
    fields = [
        f"R-{number:07}",
        f"customer{random_numbers.randrange(5000)}@example.com",
        random_numbers.choice(('"gift; wrap it"', '"leave at the door\r\nring ""twice"""', "", "", "", "")),
        (FIRST_DAY + timedelta(days=random_numbers.randrange(DAYS))).isoformat(),
        f"{random_numbers.randrange(1, 500)},{random_numbers.randrange(100):02}",
        random_numbers.choice(("EUR", "EUR", "EUR", "USD")),
    ]
    if bad:
        place, text = random_numbers.choice(((1, "nobody"), (3, "2024-02-31"), (4, "twelve"), (5, "")))
        fields[place] = text
    return ";".join(fields) + ("\r\n\r\n" if number % 1000 == 0 else "\r\n")

