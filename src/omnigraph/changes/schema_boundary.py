"""The rule for schema changes that a consumer of changes cannot cross. The feed and the Spark stream use it."""

# See docs/decisions/0163-a-schema-change-is-a-boundary.md

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from omnigraph.changes.aligned_types import TypeState
from omnigraph.lang.arrow import arrow_type


def is_boundary(before: TypeState | None, after: TypeState | None, numbers: Collection[int] | None = None) -> bool:
    """Whether a type has other columns in another state, or exists with rows in only one of the states.

    Renames are no boundary, because types and properties are identified by number. Other values of an enum, and a
    change between an enum and String, are none either: the stored type is the same.

    Args:
        before: the type in the first state; None if it does not exist.
        after: the type in the second state; None if it does not exist.
        numbers: compare only the properties with these numbers; by default all.
    """
    if before is not None and after is not None:
        return _columns(before, numbers) != _columns(after, numbers)
    found = before or after
    return found is not None and found.pin.row_count > 0


def _columns(state: TypeState, numbers: Collection[int] | None) -> dict[int, tuple[pa.DataType, bool, bool]]:
    """The properties by number: their types, whether they are nullable, and whether they are blobs."""
    return {
        state.numbers[name]: (arrow_type(type_), type_.nullable, name in state.blobs)
        for name, type_ in state.types.items()
        if numbers is None or state.numbers[name] in numbers
    }
