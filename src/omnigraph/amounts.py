"""Amounts of memory and disk, and ages: parsed from settings and options, and printed in messages."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

from omnigraph.errors import InputError, cut

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_TIMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@lru_cache(64)
def parse_amount(name: str, text: str, *, what: str = "an amount", positive: bool = False) -> int:
    """Convert an amount to bytes.

    >>> parse_amount("--memory", "1.5 GiB"), parse_amount("--memory", "4096")
    (1610612736, 4096)

    Args:
        name: the setting or option that holds the amount, for the error message.
        text: a number of bytes, or a number with KiB, MiB, GiB or TiB.
        what: a name of the expected value, for the error message.
        positive: whether zero is refused.

    Raises:
        InputError: the text is not an amount.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", text.strip())
    if parts is None or parts[2].upper() not in _UNITS or (positive and float(parts[1]) == 0):
        raise InputError(
            f"{name}: '{cut(text)}' is not {what}", hint="give a number of bytes, or a number with KiB, MiB or GiB"
        )
    return int(float(parts[1]) * _UNITS[parts[2].upper()])


def parse_age(text: str) -> timedelta | None:
    """Parse a duration: `90s`, `30m`, `12h`, `7d`, `2w`; None if the text is none.

    >>> str(parse_age("36h")), parse_age("36")
    ('1 day, 12:00:00', None)
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    return None if match is None else timedelta(**{_TIMES[match[2]]: int(match[1])})


def format_size(size: int) -> str:
    """Format an amount of bytes for messages.

    >>> format_size(3 << 29), format_size(1 << 19)
    ('1.5 GiB', '0.5 MiB')
    """
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.1f} MiB"


def counted(count: int, noun: str, nouns: str | None = None, *, mark: str = "") -> str:
    """A number with its noun. `mark` separates thousands.

    >>> counted(1, "row"), counted(2_000, "row", mark=","), counted(0, "query", "queries")
    ('1 row', '2,000 rows', '0 queries')
    """
    return f"{count:{mark}} {noun if count == 1 else nouns or noun + 's'}"
