"""Amounts of memory and disk, as settings give them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omnigraph.errors import InputError, cut

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def parse_amount(given: int | str, name: str) -> int:
    """The number of bytes of an amount such as `1024`, `"64MiB"` or `"1.5 GiB"`.

    Args:
        given: the amount.
        name: the setting or argument that has it, for the error.

    >>> parse_amount("1.5 GiB", "budget"), parse_amount(12, "budget")
    (1610612736, 12)

    Raises:
        InputError: it is not an amount.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", str(given).strip())
    if parts is None or parts[2].upper() not in _UNITS:
        hint = "give bytes, or a number with KiB, MiB or GiB"
        raise InputError(f"{name}: '{cut(str(given))}' is not an amount", hint=hint)
    return int(float(parts[1]) * _UNITS[parts[2].upper()])


def amount(environ: Mapping[str, str], variable: str, default: int) -> int:
    """The amount of an environment variable, in bytes.

    Raises:
        InputError: it is not an amount.
    """
    text = environ.get(variable)
    return default if text is None else parse_amount(text, variable)


def readable(size: int) -> str:
    """An amount as a person reads it.

    >>> readable(3 << 29), readable(1 << 19)
    ('1.5 GiB', '0.5 MiB')
    """
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.1f} MiB"
