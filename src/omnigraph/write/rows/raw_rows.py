"""Raw rows: the input columns of one type, with the location of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import TypeKind


@dataclass(frozen=True, slots=True)
class Origin:
    """The locations of rows in the input, for error messages.

    Attributes:
        records: the position of each row in the whole input, counted from 1.
        place: returns a text that describes the location, from the position.
        input_columns: the input columns of properties with another name, as texts such as `column 'years'`.
    """

    records: np.ndarray[tuple[int], np.dtype[np.int64]]
    place: Callable[[int], str]
    input_columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def consecutive(cls, count: int, place: Callable[[int], str] | None = None, first: int = 1) -> Origin:
        """The places of consecutive rows in the input."""
        return cls(np.arange(first, first + count, dtype=np.int64), place or (lambda record: f"record {record}"))

    def select(self, rows: slice | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Origin:
        """The origin of some of the rows."""
        return replace(self, records=self.records[rows])

    def subject(self, type_name: str, name: str) -> str:
        """The subject of a problem: a property, and the input column that its values come from."""
        column = self.input_columns.get(name)
        return f"{type_name}.{name}" + (f" ({column})" if column is not None else "")


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows of one type as read from the input.

    Attributes:
        columns: the columns by property.
        absent: for each nullable property with a default or a computed value, the mask of the rows whose input does not
            mention the property. Other nulls are explicit.
        origin: the location of each row.
    """

    kind: TypeKind
    name: str
    columns: Mapping[str, pa.Array]
    absent: Mapping[str, pa.Array]
    origin: Origin
