"""Reads orders out of a CSV file: good rows as orders, bad rows with the line they are on and a sentence. No Django, no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, BinaryIO

from .csv_records import SEPARATORS, Record, Records, UnreadableCsv, split

# What a column may be called: the name itself, then other names that are taken when no column has that name.
COLUMNS = {
    "order_number": ("order_no", "order", "number"),
    "customer_email": ("email", "customer"),
    "placed_on": ("order_date", "date"),
    "amount": ("total",),
    "currency": (),
}
_SEPARATOR_LINE = re.compile(r"\s*sep=([,;\t])\s*", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;.]+")
_ISO_DAY = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_DOTTED_DAY = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})")
_THOUSANDS_MARKS = str.maketrans("", "", " '\u2019\u00a0\u202f")
_PLAIN_AMOUNT = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]{1,2})?")
_GROUPED_AMOUNT = re.compile(
    r"[+-]?[0-9]{1,3}(?:(?:\.[0-9]{3})+,[0-9]{1,2}|(?:,[0-9]{3})+\.[0-9]{1,2}|(?:\.[0-9]{3}){2,}|(?:,[0-9]{3}){2,})"
)
_AMBIGUOUS_AMOUNT = re.compile(r"[+-]?[0-9]{1,3}[.,][0-9]{3}")
_LARGEST = Decimal("9999999999.99")


@dataclass(frozen=True, slots=True)
class OrderRow:
    """One good row. `line` is the first line it is on, from 1."""

    line: int
    order_number: str
    customer_email: str
    placed_on: date
    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that is not an order, and why."""

    line: int
    reason: str


class BadValue(ValueError):
    """A field that cannot be read. The message is a sentence without its line."""


def read_orders(file: BinaryIO) -> Iterator[OrderRow | BadRow]:
    """Yield the rows of a CSV file in their order.

    UTF-8 with or without BOM; separated by comma, semicolon or tab, as the header shows; columns in any order, others ignored; empty
    lines skipped. Raises UnreadableCsv, at any point, when the file as a whole cannot be read: keep nothing of it then.
    """
    _refuse_other_formats(file)
    records = Records(file)
    try:
        header = _read_header(records)
        for record in records:
            yield _row_of(record, header)
    finally:
        records.lines.close()


def _refuse_other_formats(file: BinaryIO) -> None:
    start = file.read(4)
    file.seek(0)
    if not start:
        raise UnreadableCsv("The file is empty: send a CSV file with a header line and one line for each order.")
    if start in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"):
        raise UnreadableCsv("This is a spreadsheet, not a CSV file: choose “Save as”, “CSV UTF-8”, and send that.")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UnreadableCsv("This file is UTF-16 text: save it as “CSV UTF-8” and send that.")


@dataclass(frozen=True, slots=True)
class Header:
    """Where the columns are: name -> index. `width` is the number of columns."""

    places: dict[str, int]
    width: int


def _read_header(records: Records) -> Header:
    found = records.text()
    if found and (told := _SEPARATOR_LINE.fullmatch(found[1])):  # spreadsheets write this line before the header
        records.separator = told[1]
        found = records.text()
    if found is None:
        raise UnreadableCsv("The file has no lines but empty ones: send a CSV file with a header line and one line for each order.")
    line, text = found
    separator = max(records.separator, key=lambda candidate: _fit(text, candidate))
    names = [_plain(name) for name in split(text, separator)]
    records.separator = separator
    return Header(_places(names, line), len(names))


def _fit(text: str, separator: str) -> tuple[int, int]:
    names = [_plain(name) for name in split(text, separator)]
    known = {alias for name, others in COLUMNS.items() for alias in (name, *others)}
    return len(known.intersection(names)), len(names)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().casefold())


def _places(names: list[str], line: int) -> dict[str, int]:
    places: dict[str, int] = {}
    for column, others in COLUMNS.items():
        name = next((name for name in (column, *others) if name in names), None)
        if name is None:
            continue
        if names.count(name) > 1:
            raise UnreadableCsv(f"The header in line {line} has the column {name} {names.count(name)} times: keep one of them.", line)
        places[column] = names.index(name)
    missing = [column for column in COLUMNS if column not in places]
    if missing:
        raise UnreadableCsv(
            f"The header in line {line} lacks {', '.join(missing)}: "
            f"name the columns {', '.join(COLUMNS)}, separated by comma or semicolon.",
            line,
        )
    return places


def _row_of(record: Record, header: Header) -> OrderRow | BadRow:
    if record.problem:
        return BadRow(record.line, _sentence(record.problem))
    fields = record.fields
    if len(fields) > header.width and any(field.strip() for field in fields[header.width :]):
        return BadRow(
            record.line,
            f"The row has {len(fields)} fields, the header {header.width}: put values that hold the separator in quotation marks.",
        )
    try:
        values = {column: _READERS[column](_field(fields, index)) for column, index in header.places.items()}
    except BadValue as error:
        return BadRow(record.line, _sentence(str(error)))
    return OrderRow(line=record.line, **values)


def _field(fields: list[str], index: int) -> str:
    return fields[index].strip() if index < len(fields) else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _shown(text: str) -> str:
    return f"“{text if len(text) <= 40 else text[:39] + '…'}”"


def _order_number(text: str) -> str:
    if not text:
        raise BadValue("order_number is empty")
    if len(text) > 64:
        raise BadValue(f"order_number has {len(text)} characters; at most 64 are possible")
    return text


def _customer_email(text: str) -> str:
    if not _EMAIL.fullmatch(text) or len(text) > 254:
        raise BadValue(f"customer_email {_shown(text)} is not an address" if text else "customer_email is empty")
    return text


def _placed_on(text: str) -> date:
    if found := _ISO_DAY.fullmatch(text):
        year, month, day = found.groups()
    elif found := _DOTTED_DAY.fullmatch(text):
        day, month, year = found.groups()
    else:
        raise BadValue(f"placed_on {_shown(text)} is not a date like 2024-05-31 or 31.05.2024" if text else "placed_on is empty")
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        raise BadValue(f"placed_on {_shown(text)} is not a day of the calendar") from None


def _amount(text: str) -> Decimal:
    plain = text.translate(_THOUSANDS_MARKS)
    if _GROUPED_AMOUNT.fullmatch(plain):
        last = max(plain.rfind("."), plain.rfind(","))
        decimals = plain[last:] if plain.count(plain[last]) == 1 else ""  # the mark that comes only once is the decimal one
        whole = plain[: len(plain) - len(decimals)]
        plain = whole.replace(".", "").replace(",", "") + decimals
    elif _AMBIGUOUS_AMOUNT.fullmatch(plain):
        raise BadValue(f"amount {_shown(text)} can be read in two ways: write it with two decimals and no mark for thousands")
    elif not _PLAIN_AMOUNT.fullmatch(plain):
        raise BadValue(f"amount {_shown(text)} is not a number like 12.50 or 12,50" if text else "amount is empty")
    value = Decimal(plain.replace(",", ".")).quantize(Decimal("0.01")) if len(plain) <= 16 else _LARGEST + 1
    if abs(value) > _LARGEST:
        raise BadValue(f"amount {_shown(text)} is above {_LARGEST}")
    return value


def _currency(text: str) -> str:
    if len(text) != 3 or not text.isascii() or not text.isalpha():
        raise BadValue(f"currency {_shown(text)} is not a code of three letters like EUR" if text else "currency is empty")
    return text.upper()


_READERS: dict[str, Callable[[str], Any]] = {
    "order_number": _order_number,
    "customer_email": _customer_email,
    "placed_on": _placed_on,
    "amount": _amount,
    "currency": _currency,
}

__all__ = ["SEPARATORS", "BadRow", "OrderRow", "UnreadableCsv", "read_orders"]
