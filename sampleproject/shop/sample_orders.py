"""Writes order files as customers send them: for the demo, for looking at the pages, for tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import BinaryIO

HEADER = "Order Number;Customer Email;Note;Placed On;Amount;Currency\r\n"
FIRST_DAY = date(2024, 1, 1)
DAYS = 366
NOTES = ('"gift; wrap it"', '"leave at the door\r\nring ""twice"""', "", "", "", "")
CURRENCIES = ("EUR", "EUR", "EUR", "USD")
MISTAKES = ((1, "nobody"), (3, "2024-02-31"), (4, "twelve"), (5, ""))  # place of the field, what stands there


@dataclass(frozen=True, slots=True)
class Written:
    """What a written file holds."""

    good_rows: int
    bad_rows: int


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row as it stands in the file, and what it means, known without reading it. `line`: the first line it is on, from 1."""

    line: int
    text: str
    bad: bool
    order_number: str
    customer_email: str
    placed_on: date
    amount: Decimal
    currency: str


def write_orders(file: BinaryIO, rows: int, *, bad_every: int = 0, seed: int = 0) -> Written:
    """Write `rows` rows, every `bad_every`-th of them bad (0: none), with BOM, semicolons, decimal commas, quoted notes with line ends
    and some empty lines. The same arguments give the same file; all days are in 2024.
    """
    file.write(b"\xef\xbb\xbf" + HEADER.encode())
    bad_rows = 0
    for row in sample_rows(rows, bad_every=bad_every, seed=seed):
        bad_rows += row.bad
        file.write(row.text.encode())
    return Written(rows - bad_rows, bad_rows)


def sample_rows(rows: int, *, bad_every: int = 0, seed: int = 0) -> Iterator[SampleRow]:
    """The rows that write_orders() writes below the header, with what they mean."""
    random_numbers = random.Random(seed)
    line = 2
    for number in range(1, rows + 1):
        row = _row(line, number, random_numbers, bad=bool(bad_every) and number % bad_every == 0)
        yield row
        line += row.text.count("\n")


def _row(line: int, number: int, random_numbers: random.Random, *, bad: bool) -> SampleRow:
    below = random_numbers.random  # times n, cut off: a fifth of what randrange(n) costs, and there are hundreds of thousands of rows
    email = f"customer{int(below() * 5000)}@example.com"
    note = NOTES[int(below() * len(NOTES))]
    placed_on = FIRST_DAY + timedelta(days=int(below() * DAYS))
    cents = 100 + int(below() * 49_900)
    currency = CURRENCIES[int(below() * len(CURRENCIES))]
    fields = [f"R-{number:07}", email, note, placed_on.isoformat(), f"{cents // 100},{cents % 100:02}", currency]
    if bad:
        place, text = MISTAKES[int(below() * len(MISTAKES))]
        fields[place] = text
    text = ";".join(fields) + ("\r\n\r\n" if number % 1000 == 0 else "\r\n")
    return SampleRow(line, text, bad, fields[0], email, placed_on, Decimal(cents) / 100, currency)
