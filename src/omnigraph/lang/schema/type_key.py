"""Type keys: `node:<Type>` or `edge:<Type>`, the name of a type in manifests, receipts and errors."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from omnigraph.lang.schema.catalog import TypeKind


class TypeKey(NamedTuple):
    """The two parts of a type key."""

    kind: TypeKind
    name: str

    @classmethod
    def parse(cls, key: str) -> TypeKey:
        """Split a type key.

        >>> TypeKey.parse("edge:Knows").name
        'Knows'

        Raises:
            ValueError: the text is not a type key.
        """
        kind, _, name = key.partition(":")
        return cls(TypeKind(kind), name)


def type_key(kind: TypeKind, name: str) -> str:
    """The key of a type."""
    return f"{kind.value}:{name}"


@lru_cache(1024)
def node_key(name: str) -> str:
    """The key of a node type."""
    return type_key(TypeKind.NODE, name)


@lru_cache(1024)
def edge_key(name: str) -> str:
    """The key of an edge type."""
    return type_key(TypeKind.EDGE, name)


def either_kind(key: str) -> tuple[str, str]:
    """A type key, and the key of the type of the other kind with the same name."""
    kind, _, name = key.partition(":")
    both = node_key(name), edge_key(name)
    return (both[1], both[0]) if kind == TypeKind.EDGE.value else both
