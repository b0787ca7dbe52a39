"""The names of enum values in the schema of a merge target.

Values are matched by their identities, which the stored schemas record. So renames are followed in order, and a name
that was used again is not taken for the earlier value.
"""

# See docs/decisions/0195-a-merge-uses-the-schema-of-its-target.md

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema.identity import TEXT, EnumIdentity, ValueId
from omnigraph.lang.types import Scalar, ValueType


@dataclass(frozen=True, slots=True)
class EnumValues:
    """The values that a property can have in one schema.

    Attributes:
        type: the type of the property.
        identity: the identities of its values.
    """

    type: ValueType
    identity: EnumIdentity

    @property
    def is_text(self) -> bool:
        """Whether the property is an enum or a String."""
        return self.type.scalar is Scalar.STRING

    def id_of(self, name: str) -> ValueId:
        """The identity of a value."""
        return self.identity.of_text(name) if self.type.enum_values is None else self.identity.of(name)

    def name_of(self, identity: ValueId) -> str | None:
        """The name of the value with an identity; None if there is none."""
        if self.type.enum_values is not None:
            return next((name for name in self.type.enum_values if self.identity.of(name) == identity), None)
        for name, one in self.identity.ids.items():
            if one == identity:
                return name
        if isinstance(identity, int):
            return None
        text = _first_name(identity)
        return text if self.id_of(text) == identity else None


@dataclass(frozen=True, slots=True)
class Renaming:
    """The conversion of enum values to the schema of the target.

    Attributes:
        pairs: the old and new names of values. A value that the target does not have, but whose name is another value
            there, gets a name that no enum allows. So it is a conflict.
        refused: values of an enum that a String of the target cannot hold, because their name is another value there.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    refused: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs or self.refused)


def renaming(source: EnumValues, target: EnumValues) -> Renaming:
    """The conversion of the values of a property from one schema to another."""
    if not source.is_text or not target.is_text or (source == target):
        return Renaming()
    names = sorted(set(_names(source, target)))
    found = {name: target.name_of(source.id_of(name)) for name in names}
    reached = {name for name in found.values() if name is not None}
    pairs = [(name, new) for name, new in found.items() if new is not None and new != name]
    refused = []
    for name in (name for name, new in found.items() if new is None):
        identity = source.id_of(name)
        if target.type.enum_values is not None:
            if name in target.type.enum_values or isinstance(identity, int):
                pairs.append((name, _another(name, identity)))
        elif name in reached or name in target.identity.ids:
            refused.append(name)
    return Renaming(tuple(sorted(pairs)), tuple(refused))


def _names(source: EnumValues, target: EnumValues) -> Iterator[str]:
    """The values of the source. If it is a String, only those that the enum identities of both schemas name."""
    if source.type.enum_values is not None:
        yield from source.type.enum_values
        return
    for one in (source, target):
        yield from one.type.enum_values or ()
        yield from one.identity.ids
        for identity in (*one.identity.dropped, *one.identity.ids.values()):
            if isinstance(identity, str):
                yield _first_name(identity)


def _first_name(identity: str) -> str:
    """The name or text that an identity was made from."""
    while identity.endswith(TEXT):
        identity = identity.removesuffix(TEXT)
    return identity


def _another(name: str, identity: ValueId) -> str:
    """A text for a value whose name is another value in the target. No enum allows it: it contains spaces."""
    number = f", number {identity}" if isinstance(identity, int) else ""
    return f"{name} (another value of this name{number})"
