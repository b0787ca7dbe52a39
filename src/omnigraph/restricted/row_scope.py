"""The rows, types and properties of one schema that an actor may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum
from hashlib import blake2b
from typing import Protocol

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema


class Rows(Enum):
    """The rows of a type that need no condition."""

    ALL = "all"
    HIDDEN = "hidden"
    """No row. The type does not exist for the actor."""


@dataclass(frozen=True, slots=True)
class RowScope:
    """The rows and properties that an actor may use, for one schema.

    Attributes:
        types: for every type key of the schema: a condition on the properties of `ir.SELF`, or `Rows`. A type without
            an entry is hidden.
        hidden_properties: the masked properties of types, by type key.
        params: the parameters of the conditions: `actor` and `groups`.
        rules: the ids of the rules that limit a type, by type key.
    """

    types: Mapping[str, ir.Expr | Rows]
    hidden_properties: Mapping[str, frozenset[str]]
    params: Mapping[str, ir.ConstValue]
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def has_hidden_types(self) -> bool:
        """Whether the actor may not use all types."""
        return Rows.HIDDEN in self.types.values()

    @property
    def limits_rows(self) -> bool:
        """Whether a type has a condition or masked properties."""
        return any(self.hidden_properties.values()) or not all(isinstance(rows, Rows) for rows in self.types.values())

    def hides(self, key: str) -> bool:
        """Whether the actor may not use a type. A type that the schema does not have is not hidden."""
        return self.types.get(key) is Rows.HIDDEN

    def visible(self, keys: Iterable[str]) -> list[str]:
        """The type keys that are not hidden."""
        return [key for key in keys if not self.hides(key)]

    def rows_of(self, key: str) -> ir.Expr | Rows:
        """The visible rows of a type: a condition, or `Rows`."""
        return self.types.get(key, Rows.HIDDEN)

    def masked(self, key: str) -> frozenset[str]:
        """The properties of a type that are hidden."""
        return self.hidden_properties.get(key, frozenset())

    @property
    def digest(self) -> str:
        """Digest of the whole scope. Scopes with equal digests show the same rows and properties."""
        keys = sorted({*self.types, *self.hidden_properties})
        return digest_of([(key, self.digest_of(key)) for key in keys])

    def digest_of(self, key: str) -> str:
        """Digest of the visible rows and properties of a type, without those of the ends of an edge type."""
        rows = self.rows_of(key)
        if isinstance(rows, Rows):
            return digest_of((rows.value, sorted(self.masked(key))))
        used = sorted({part.name for part in walk(rows) if isinstance(part, ir.Param)})
        return digest_of((rows, sorted(self.masked(key)), [(name, self.params[name]) for name in used]))


def digest_of(value: object) -> str:
    """Digest of a value with a unique representation."""
    return blake2b(repr(value).encode(), digest_size=16).hexdigest()


class ScopeOf(Protocol):
    """The rules of an actor, as a function that returns the scope for a state of the graph."""

    @property
    def digest(self) -> str:
        """Identifies the rules and the actor. With other rules, cursors of the change feed are not valid."""
        ...

    def __call__(self, view: Manifest, accepted: AcceptedSchema) -> RowScope:
        """The scope for a stored state and its schema. It must be the same for the same branch and schema."""
        ...
