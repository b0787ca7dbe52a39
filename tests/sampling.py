"""Samples of the cases of a slow test: some run with all tests, the others only in `make soak`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_nth(values: Iterable[Any], step: int, first: int = 0) -> list[Any]:
    """Mark all values with `soak`, except those at positions `first`, `first + step`, `first + 2 * step` and so on.

    A tuple is the values of several parameters.
    """
    return [
        value
        if place % step == first
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.soak)
        for place, value in enumerate(values)
    ]


def sampled(number: int, step: int) -> pytest.MarkDecorator:
    """The mark of a case: `slow` for every `step`-th case, and `soak` for the others."""
    return pytest.mark.slow if number % step == 0 else pytest.mark.soak
