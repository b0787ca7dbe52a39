"""Support for tests of OmniGraph.

Some modules choose a method by size, or work in chunks. They read the limit from a public upper-case constant at every
call. `thresholds` changes such constants, so that a test with a small graph runs the code for large graphs. Failpoints,
which stop a write at a named step, are in `omnigraph.commit.failpoints`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def thresholds(module: ModuleType, **values: object) -> Iterator[None]:
    """Set public constants of a module, and restore them at the end of the block.

    >>> from omnigraph.read.columns import sorting
    >>> with thresholds(sorting, SORT_CHUNK_ROWS=10):
    ...     sorting.SORT_CHUNK_ROWS
    10
    >>> sorting.SORT_CHUNK_ROWS
    131072

    Args:
        module: the module that reads the constants.
        values: the new values by name.

    Raises:
        ValueError: the module has no public constant of that name.
    """
    for name in values:
        if name.startswith("_") or not name.isupper() or not hasattr(module, name):
            raise ValueError(f"{module.__name__} has no public constant {name}")
    before = {name: getattr(module, name) for name in values}
    try:
        vars(module).update(values)
        yield
    finally:
        vars(module).update(before)
