"""The number of examples of property tests."""

from __future__ import annotations

import os

from hypothesis import settings

FEW = 30
"""The most examples of a test in `make check`, which sets `OMNIGRAPH_CASES`."""


def few(count: int) -> int:
    """A number of examples, or `FEW` in `make check`, if that is less."""
    return min(count, FEW) if os.environ.get("OMNIGRAPH_CASES") else count


def examples(count: int) -> settings:
    """Decorate a property test with its number of examples, fewer in `make check`."""
    return settings(max_examples=few(count))
