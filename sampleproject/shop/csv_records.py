"""Splits a CSV file into records that know the line they begin on. Streams: holds one record at a time.

Line ends may be LF, CRLF or CR; quoted fields may hold separators, doubled quotes and line ends. A quote that is never closed spoils
the line it is on and not the rest of the file.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAX_LINE_CHARACTERS = 65_536
MAX_RECORD_LINES = 100
MAX_RECORD_CHARACTERS = 65_536
SEPARATORS = ",;\t"
_UNDECODABLE = re.compile("[\udc80-\udcff]")


class UnreadableCsv(ValueError):
    """The file as a whole cannot be read. The message is a sentence for the person who sent it; `line` is 0 for the whole file."""

    def __init__(self, sentence: str, line: int = 0) -> None:
        self.line = line
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Record:
    """Fields of one row, or why there are none. `line` is the first line it is on, from 1."""

    line: int
    fields: list[str]
    problem: str = ""


class Lines:
    """Numbered lines of a text, with their line ends. Lines can be put back to be read again."""

    def __init__(self, file: BinaryIO) -> None:
        # Bytes that are not UTF-8 become lone surrogates, so that the line they are on can be named.
        self._text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        self._again: deque[tuple[int, str]] = deque()
        self._number = 0

    def next(self) -> tuple[int, str] | None:
        """The next line and its number, or None at the end. Raises UnreadableCsv for what is not text."""
        if self._again:
            return self._again.popleft()
        line = self._text.readline(MAX_LINE_CHARACTERS)
        if not line:
            return None
        self._number += 1
        self._check(line)
        if len(line) == MAX_LINE_CHARACTERS and line[-1] not in "\r\n":
            self._skip_to_line_end()
        return self._number, line

    def put_back(self, lines: list[tuple[int, str]]) -> None:
        self._again.extendleft(reversed(lines))

    def close(self) -> None:
        """Let go of the file without closing it: it is the caller's."""
        self._text.detach()

    def _check(self, line: str) -> None:
        if "\0" in line:
            raise UnreadableCsv(
                f"Line {self._number} holds a NUL byte, so this is not a CSV text: save it as “CSV UTF-8” and send that.", self._number
            )
        if not line.isascii() and _UNDECODABLE.search(line):
            raise UnreadableCsv(f"Line {self._number} is not UTF-8 text: save the file as “CSV UTF-8” and send that.", self._number)

    def _skip_to_line_end(self) -> None:
        while rest := self._text.readline(MAX_LINE_CHARACTERS):
            if rest[-1] in "\r\n":
                return


class Records:
    """Records of a file, one after the other. `separator` is set once the header is known."""

    def __init__(self, file: BinaryIO) -> None:
        self.lines = Lines(file)
        self._separator = ""
        self._opens = re.compile("")
        self.separator = SEPARATORS

    @property
    def separator(self) -> str:
        """The separator, or several while it is not known yet which."""
        return self._separator

    @separator.setter
    def separator(self, value: str) -> None:
        self._separator = value
        self._opens = re.compile(rf'(?:^|[{re.escape(value)}]) *"')

    def __iter__(self) -> Iterator[Record]:
        """Records that are not empty."""
        while (first := self.lines.next()) is not None:
            number, line = first
            if len(line) == MAX_LINE_CHARACTERS and line[-1] not in "\r\n":
                yield Record(number, [], f"the line is longer than {MAX_LINE_CHARACTERS} characters")
            elif '"' not in line:
                if line.strip(self._separator + " \t\r\n"):
                    yield Record(number, line.rstrip("\r\n").split(self._separator))
            else:
                yield self._quoted(number, line)

    def text(self) -> tuple[int, str] | None:
        """The next record that is not empty, unsplit: for the header, whose separator is not known yet."""
        while (first := self.lines.next()) is not None:
            if first[1].strip(self._separator + " \t\r\n"):
                return first[0], self._whole(*first) or first[1]
        return None

    def _quoted(self, number: int, line: str) -> Record:
        text = self._whole(number, line)
        if text is None:
            return Record(number, [], "a quotation mark is opened here and never closed")
        try:
            return Record(number, split(text, self._separator))
        except csv.Error as error:
            return Record(number, [], f"the quotation marks do not fit ({error})")

    def _whole(self, number: int, line: str) -> str | None:
        """The record that begins with this line; None when its quotes do not end, with all lines after the first put back."""
        taken: list[tuple[int, str]] = []
        text, inside = line, self._ends_inside(line, False)
        while inside:
            following = self.lines.next() if len(taken) < MAX_RECORD_LINES and len(text) < MAX_RECORD_CHARACTERS else None
            if following is None:
                self.lines.put_back(taken)
                return None
            taken.append(following)
            text += following[1]
            inside = self._ends_inside(following[1], True)
        return text

    def _ends_inside(self, line: str, inside: bool) -> bool:
        """Whether a quoted field is still open at the end of this line; `inside`: whether one was at its beginning."""
        position = 0
        while True:
            if not inside:
                opening = self._opens.search(line, position)
                if opening is None:
                    return False
                position, inside = opening.end(), True
            position = line.find('"', position)
            if position < 0:
                return True
            if line.startswith('""', position):
                position += 2
            else:
                position, inside = position + 1, False


def split(text: str, separator: str) -> list[str]:
    """Fields of one whole record, which may span lines. Raises csv.Error."""
    # Not str.splitlines: that also splits at U+2028 and other signs that are no line ends in a CSV file.
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    return [field for row in rows for field in row]
