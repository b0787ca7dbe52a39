"""The declaration that is being checked, and its name in errors."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema.catalog import TypeKind

ENDPOINTS = ("src", "dst")
"""The built-in columns of an edge that constraints can use."""

ROW_COLUMNS = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
"""Columns that the storage format adds to every table."""

NODE_COLUMNS = frozenset({"id"})
EDGE_COLUMNS = frozenset({"id", "src", "dst", "from", "to"})


@dataclass(frozen=True, slots=True)
class Owner:
    """A declaration that is being checked. `through` is the interface from which it inherits the checked property."""

    kind: TypeKind
    name: str
    through: str | None = None

    def __str__(self) -> str:
        via = f" (through interface '{self.through}')" if self.through else ""
        return f"{self.kind.value} '{self.name}'{via}"

    @property
    def is_edge(self) -> bool:
        return self.kind is TypeKind.EDGE

    def built_in(self, name: str) -> bool:
        """Whether a built-in column of the table has this name."""
        if name in ROW_COLUMNS:
            return True
        if self.kind is TypeKind.INTERFACE:
            return False
        return name in (EDGE_COLUMNS if self.is_edge else NODE_COLUMNS)
