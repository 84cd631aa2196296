"""What the reader of order files takes, what it refuses, and what it says then."""

from __future__ import annotations

import tracemalloc
from datetime import date
from decimal import Decimal
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampleproject.shop.csv_orders import BadRow, OrderRow, UnreadableCsv, read_orders

HEADER = "order_number,customer_email,placed_on,amount,currency\n"
GOOD = "A-1,ada@example.com,2024-05-31,12.50,EUR\n"
ADA = OrderRow(2, "A-1", "ada@example.com", date(2024, 5, 31), Decimal("12.50"), "EUR")


def read(text: str | bytes) -> list[OrderRow | BadRow]:
    return list(read_orders(BytesIO(text.encode() if isinstance(text, str) else text)))


def refusal(text: str | bytes) -> str:
    with pytest.raises(UnreadableCsv) as caught:
        read(text)
    return str(caught.value)


def amount(text: str) -> Decimal | str:
    (row,) = read(HEADER.replace(",", ";") + f"A-1;ada@example.com;2024-05-31;{text};EUR\n")
    return row.amount if isinstance(row, OrderRow) else row.reason


# -- shapes of files


@pytest.mark.parametrize(
    "text",
    [
        HEADER + GOOD,
        "\ufeff" + HEADER + GOOD,
        (HEADER + GOOD).replace("\n", "\r\n"),
        (HEADER + GOOD).replace("\n", "\r"),
        (HEADER + GOOD).rstrip("\n"),
        (HEADER + GOOD).replace(",", ";"),
        (HEADER + GOOD).replace(",", "\t"),
        "Currency,Amount,NOTE,Placed On,customer-email,Order Number\nEUR,12.50,x,2024-05-31,ada@example.com,A-1\n",
        '"order_number";"customer_email";"placed_on";"amount";"currency"\n"A-1";"ada@example.com";"2024-05-31";"12,50";"eur"\n',
        "order_number,customer_email,placed_on,amount,currency,,\nA-1,ada@example.com,31.05.2024,12.5,EUR,,\n",
        "order,email,date,total,currency\n A-1 , ada@example.com , 2024-05-31 , 12.50 , EUR \n",
    ],
    ids=[
        "plain",
        "bom",
        "crlf",
        "cr",
        "no last line end",
        "semicolons",
        "tabs",
        "any order and case",
        "all quoted",
        "empty columns",
        "other names",
    ],
)
def test_same_order_comes_out_of_every_shape_of_file(text: str) -> None:
    assert read(text) == [ADA]


def test_semicolon_file_may_hold_commas_in_its_header() -> None:
    header = 'order_number;customer_email;"note, long, with commas, more, than, separators";placed_on;amount;currency\n'
    assert read(header + "A-1;ada@example.com;a,b;2024-05-31;12,50;EUR\n") == [ADA]


def test_separator_line_of_spreadsheets_is_understood() -> None:
    (row,) = read("sep=;\r\n" + (HEADER + GOOD).replace(",", ";"))
    assert isinstance(row, OrderRow)
    assert row.line == 3


def test_empty_lines_are_skipped_and_counted() -> None:
    rows = read("\n\n" + HEADER + "\n , ,\t,,\n" + GOOD + "\n,,,,\n" + GOOD + "\n\n")
    assert [row.line for row in rows] == [6, 9]


def test_quoted_field_may_hold_separator_quote_and_line_ends() -> None:
    header = "note,order_number,customer_email,placed_on,amount,currency\r\n"
    rows = read(header + '"one, ""two""\r\nthree\n\nfour",A-1,ada@example.com,2024-05-31,"12,50",EUR\r\n' + "x," + GOOD)
    assert [(row.line, type(row)) for row in rows] == [(2, OrderRow), (6, OrderRow)]


def test_quote_inside_an_unquoted_field_is_a_plain_sign() -> None:
    (row,) = read(HEADER + 'nail 5" long,ada@example.com,2024-05-31,12.50,EUR\n')
    assert isinstance(row, OrderRow)
    assert row.order_number == 'nail 5" long'


@pytest.mark.parametrize("sign", ["\u2028", "\x0b", "\x85", "\x1c"])
def test_other_line_signs_of_unicode_end_no_line(sign: str) -> None:
    rows = read(HEADER + f'A{sign}1,"a{sign}b@example.com",2024-05-31,12.50,EUR\n' + GOOD)
    assert [row.line for row in rows] == [2, 3]


# -- bad rows


def test_bad_rows_are_reported_with_their_line_and_good_ones_kept() -> None:
    text = HEADER + GOOD + "A-2,nobody,2024-05-31,1,EUR\n" + "\n" + '"A-3\nx",ada@example.com,2024-02-30,1,EUR\n' + GOOD
    rows = read(text)
    assert [row.line for row in rows] == [2, 3, 5, 7]
    assert rows[1] == BadRow(3, "Customer_email “nobody” is not an address.")
    assert rows[2] == BadRow(5, "Placed_on “2024-02-30” is not a day of the calendar.")


def test_quote_that_is_never_closed_spoils_only_its_own_line() -> None:
    rows = read(HEADER + GOOD + '"A-2,ada@example.com,2024-05-31,1,EUR\n' + GOOD * 500)
    assert [row.line for row in rows if isinstance(row, OrderRow)] == [2, *range(4, 504)]
    assert [row for row in rows if isinstance(row, BadRow)] == [BadRow(3, "A quotation mark is opened here and never closed.")]


def test_quote_that_is_never_closed_in_the_last_lines_loses_nothing_after_it() -> None:
    rows = read(HEADER + '"A-2,ada@example.com,2024-05-31,1,EUR\n' + GOOD)
    assert [type(row) for row in rows] == [BadRow, OrderRow]


def test_line_that_is_far_too_long_is_one_bad_row() -> None:
    rows = read(HEADER + "x" * 200_000 + "\n" + GOOD)
    assert rows[0] == BadRow(2, "The line is longer than 65536 characters.")
    assert rows[1].line == 3


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (",ada@example.com,2024-05-31,1,EUR", "Order_number is empty"),
        ("x" * 65 + ",ada@example.com,2024-05-31,1,EUR", "65 characters"),
        ("A,,2024-05-31,1,EUR", "Customer_email is empty"),
        ("A,a b@example.com,2024-05-31,1,EUR", "is not an address"),
        ("A,ada@example.com,,1,EUR", "Placed_on is empty"),
        ("A,ada@example.com,05/31/2024,1,EUR", "is not a date like"),
        ("A,ada@example.com,2024-W01-1,1,EUR", "is not a date like"),
        ("A,ada@example.com,٢٠٢٤-05-31,1,EUR", "is not a date like"),
        ("A,ada@example.com,0000-05-31,1,EUR", "is not a day"),
        ("A,ada@example.com,2024-05-31,,EUR", "Amount is empty"),
        ("A,ada@example.com,2024-05-31,1", "Currency is empty"),
        ("A,ada@example.com,2024-05-31,1,€", "is not a code of three letters"),
        ("A,ada@example.com,2024-05-31,1,ÄÖÜ", "is not a code of three letters"),
        ("A,ada@example.com,2024-05-31,12,50,EUR", "has 6 fields, the header 5"),
    ],
)
def test_bad_row_says_what_is_wrong(row: str, says: str) -> None:
    (bad,) = read(HEADER + row + "\n")
    assert isinstance(bad, BadRow)
    assert says in bad.reason
    assert bad.reason.endswith(".")


# -- amounts


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", "12"), ("12.5", "12.5"), ("12,50", "12.5"), ("-3,00", "-3"), ("+7", "7"), ("1.234,50", "1234.5"), ("1,234.50", "1234.5"),
     ("1 234,50", "1234.5"), ("1\u00a0234,50", "1234.5"), ("1'234.50", "1234.5"), ("1.234.567", "1234567"), ("1,234,567.89", "1234567.89"),
     ("9999999999.99", "9999999999.99"), ("0", "0"), ("007", "7")],
)  # fmt: skip
def test_amount_is_read_as_people_write_it(text: str, value: str) -> None:
    assert amount(text) == Decimal(value)


@pytest.mark.parametrize("text", ["1.234", "1,234"])
def test_amount_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    assert "can be read in two ways" in str(amount(text))


@pytest.mark.parametrize("text", ["NaN", "1e5", "Infinity", "12.345,6.7", "1,23,456", "--1", "12.50 EUR", "٣", "0x10", ".", "1_000"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    assert "is not a number like" in str(amount(text))


@pytest.mark.parametrize("text", ["10000000000", "9" * 30, "9" * 4400])
def test_amount_beyond_the_column_is_refused(text: str) -> None:
    assert "is above" in str(amount(text))


# -- files that cannot be read


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "The file is empty"),
        (b"\n \r\n;;;\n", "no lines but empty ones"),
        (b"\xef\xbb\xbf", "no lines but empty ones"),
        (b"PK\x03\x04rest of a workbook", "This is a spreadsheet"),
        ("order_number".encode("utf-16"), "UTF-16"),
        ((HEADER + GOOD).encode() + "A-2,j\u00fcrgen@example.com,2024-05-31,1,EUR\n".encode("latin-1"), "Line 3 is not UTF-8 text"),
        ((HEADER + GOOD).encode() + b"\xed\xa0\x80\n", "Line 3 is not UTF-8 text"),
        ((HEADER + GOOD).encode() + b"A\x002\n", "Line 3 holds a NUL byte"),
        (b"order_number,amount\n1,2\n", "lacks customer_email, placed_on, currency"),
        (b"hello\n", "lacks order_number"),
        ((HEADER.strip() + ",Amount\n").encode(), "has the column amount 2 times"),
    ],
)
def test_unreadable_file_gets_one_sentence(content: bytes, says: str) -> None:
    assert says in refusal(content)


def test_header_alone_is_a_file_without_orders() -> None:
    assert read(HEADER) == []


# -- properties


def test_large_file_is_streamed() -> None:
    content = BytesIO((HEADER + GOOD * 20_000).encode())
    tracemalloc.start()
    count = sum(1 for _ in read_orders(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 400_000  # the file itself is 0.8 MB and was made before


fields = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)


@given(st.lists(fields, min_size=1, max_size=4), st.sampled_from(",;\t"), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_quoted_text_leaves_the_following_row_alone(texts: list[str], separator: str, line_end: str) -> None:
    quoted = separator.join('"' + text.replace('"', '""') + '"' for text in texts)
    names = separator.join(f"note{number}" for number in range(len(texts)))
    header, good = (text.strip().replace(",", separator) for text in (HEADER, GOOD))
    content = line_end.join([f"{header}{separator}{names}", f"{good}{separator}{quoted}", f"{good}{separator}{quoted}", ""])
    rows = read(content)
    assert [isinstance(row, OrderRow) for row in rows] == [True, True]


@given(st.binary(max_size=300))
def test_any_bytes_are_rows_or_one_refusal(content: bytes) -> None:
    for start in (b"", HEADER.encode()):
        try:
            rows = read(start + content)
        except UnreadableCsv:
            continue
        assert all(row.line > 1 for row in rows)
