"""Use the column cache as reads do."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from omnigraph.read.columns.cache import ColumnCache


def cached(cache: ColumnCache, key: Hashable, make: Callable[[], Any]) -> Any:
    """The cached value of a key, computed if it is missing."""
    with cache.slot(key) as slot:
        return slot.keep(make()) if slot.value is None else slot.value
