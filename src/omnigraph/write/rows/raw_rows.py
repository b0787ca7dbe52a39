"""Raw rows: columns of one type as they came from the input, and the place of each row in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema import TypeKind


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows came from, so that a problem can name the place.

    Attributes:
        records: the position of each row in the whole input, counted from 1.
        place: what a person calls a position.
        given: what properties are made of, where that goes by another name: `column 'years'`.
    """

    records: np.ndarray[tuple[int], np.dtype[np.int64]]
    place: Callable[[int], str]
    given: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def counted(cls, count: int, place: Callable[[int], str] | None = None, first: int = 1) -> Origin:
        """Rows that were counted one after another."""
        return cls(np.arange(first, first + count, dtype=np.int64), place or (lambda record: f"record {record}"))

    def chosen(self, rows: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Origin:
        """Some of the rows."""
        return replace(self, records=self.records[rows])

    def subject(self, type_name: str, name: str) -> str:
        """What a problem is about: a property, and what it was made of."""
        given = self.given.get(name)
        return f"{type_name}.{name}" + (f" ({given})" if given is not None else "")


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows of one type as they came.

    Attributes:
        columns: by property.
        absent: for properties that have a default or are computed and may be null, the rows without that member.
        origin: where each row stood.
    """

    kind: TypeKind
    name: str
    columns: Mapping[str, pa.Array]
    absent: Mapping[str, pa.Array]
    origin: Origin
