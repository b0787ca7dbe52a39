"""One declaration before and after a schema change, with the mapping of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from omnigraph.dataclass import dataclass
from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.schema.catalog import EdgeType, InterfaceType, NodeType, Property, TypeKind
from omnigraph.lang.schema.identity import Resolution, property_label
from omnigraph.lang.schema.migrate.steps import DropMode, Tier, UnsupportedChange

T = TypeVar("T", InterfaceType, NodeType, EdgeType)


@dataclass(frozen=True, slots=True)
class TypeChange(Generic[T]):
    """A declaration that exists before and after the change.

    Attributes:
        kind: the kind of declaration.
        old: the accepted declaration.
        new: the desired declaration.
        former: the former name of every property that already existed.
        current: the new name of every property that still exists; the inverse of `former`.
        resolution: the name mapping of the whole schema.
        mode: whether earlier versions of the graph keep dropped properties.
        refused: the properties with an invalid rename hint. It is unknown whether they are new.
    """

    kind: TypeKind
    old: T
    new: T
    former: Mapping[str, str]
    current: Mapping[str, str]
    resolution: Resolution
    mode: DropMode
    refused: frozenset[str]

    @property
    def label(self) -> str:
        return f"{self.kind.value} '{self.new.name}'"

    @property
    def has_data(self) -> bool:
        """Whether the declaration has rows. Interfaces have none, so their changes are always safe."""
        return self.kind is not TypeKind.INTERFACE

    def common_properties(self) -> Iterator[tuple[Property, Property]]:
        """The properties that exist before and after the change, as (old, new), sorted by the new name."""
        for name, former in sorted(self.former.items()):
            yield self.old.properties[former], self.new.properties[name]

    def property_label(self, name: str) -> str:
        return property_label((self.kind, self.new.name), name)


def change_of(
    kind: TypeKind, old: T, new: T, resolution: Resolution, mode: DropMode, refused: frozenset[str]
) -> TypeChange[T]:
    former = resolution.properties[kind, new.name]
    current = {old_name: name for name, old_name in former.items()}
    return TypeChange(kind, old, new, former, current, resolution, mode, refused)


def refuse(code: str, entity: str, reason: str, hint: str, property_name: str | None = None) -> UnsupportedChange:
    """A refused change. Its code determines the tier."""
    tier = Tier(CODES[code].tier or Tier.SAFE)
    return UnsupportedChange(entity, reason, hint, property_name, tier=tier, code=code)
