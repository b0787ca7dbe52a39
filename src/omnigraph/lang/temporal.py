"""Parse and format dates and times. Schemas, queries and load files use the same formats.

A `Date` is stored as days and a `DateTime` as milliseconds, both since 1970-01-01 UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

MS_PER_DAY = 86_400_000

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: ?(?:([Zz]|UTC)|([+-])(\d\d)(?::?(\d\d))?))?)?",
    re.ASCII,
)
"""The formats of ISO 8601, and common formats of databases: `2026-03-14 09:30:00+02`, `+0200`, ` UTC`."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()
FIRST_MS = (date.min.toordinal() - _EPOCH_DAY) * MS_PER_DAY
LAST_MS = (date.max.toordinal() - _EPOCH_DAY + 1) * MS_PER_DAY - 1
"""The supported range: the years 1 to 9999."""


def parse_datetime(text: str) -> int:
    """Parse a timestamp to milliseconds. The default offset is UTC. A date without a time means midnight.

    >>> parse_datetime("1970-01-02T00:00:00.5+00:00"), parse_datetime("1970-01-02 02:00:00.5+02")
    (86400500, 86400500)

    Raises:
        ValueError: the text is not a timestamp, or the day or time does not exist.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp like 2026-03-14T09:30:00Z")
    year, month, day, hour, minute, second, fraction, _, sign, off_hours, off_minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"there is no day {year}-{month}-{day}") from None
    if hour is None:
        return days * MS_PER_DAY
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise ValueError(f"there is no time {hour}:{minute}:{second}")
    millis = ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1000
    # Digits below a millisecond are truncated, not rounded.
    millis += int((fraction or "0")[:3].ljust(3, "0"))
    if sign is not None:
        off_minutes = off_minutes or "00"
        if int(off_hours) > 23 or int(off_minutes) > 59:
            raise ValueError(f"there is no offset {sign}{off_hours}:{off_minutes}")
        offset = (int(off_hours) * 60 + int(off_minutes)) * 60_000
        millis += offset if sign == "-" else -offset
    total = days * MS_PER_DAY + millis
    if not FIRST_MS <= total <= LAST_MS:
        raise ValueError("outside the years 1 to 9999 in UTC")
    return total


def parse_date(text: str) -> int:
    """Parse a date to days. A timestamp gives its day in UTC.

    >>> parse_date("1970-01-03")
    2

    Raises:
        ValueError: see `parse_datetime`.
    """
    try:
        return parse_datetime(text) // MS_PER_DAY
    except ValueError as error:
        if str(error).startswith("not a timestamp"):
            raise ValueError("not a date like 2026-03-14") from None
        raise


def format_date(days: int) -> str:
    """Format a day as ISO 8601.

    >>> format_date(2)
    '1970-01-03'
    """
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def format_datetime(millis: int) -> str:
    """Format a timestamp in UTC. Milliseconds are printed only if they are not zero.

    >>> format_datetime(86400500)
    '1970-01-02T00:00:00.500Z'
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    precision = "milliseconds" if millis % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
