"""Sizes of memory and disk in settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from omnigraph.errors import InputError

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def size_setting(environ: Mapping[str, str], variable: str, default: int) -> int:
    """Read a size in bytes from an environment variable.

    Raises:
        InputError: the value is not a size.
    """
    text = environ.get(variable)
    if text is None:
        return default
    parts = re.fullmatch(r"(\d+(?:\.\d+)?) *([A-Za-z]*)", text.strip())
    if parts is None or parts[2].upper() not in _UNITS:
        raise InputError(f"{variable}: '{text}' is not an amount", hint="give bytes, or a number with KiB, MiB or GiB")
    return int(float(parts[1]) * _UNITS[parts[2].upper()])


def format_size(size: int) -> str:
    """Format a size for users.

    >>> format_size(3 << 29), format_size(1 << 19)
    ('1.5 GiB', '0.5 MiB')
    """
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.1f} MiB"
