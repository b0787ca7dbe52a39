"""The syntax tree of `.pg`, in source order.

Two trees are equal if their texts differ only in white space and comments.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import SourceText, Span
from omnigraph.lang.types import Scalar

_NOWHERE = Span(0, 0)


class LiteralKind(StrEnum):
    """The kind of a literal. `WORD` is a bare name or code, `NOW` is `now()`."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    WORD = "word"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal. `text` is the content of a string, or the source text of a number."""

    kind: LiteralKind
    text: str
    span: Span = field(default=_NOWHERE, compare=False)

    @property
    def value(self) -> str | int | float | bool:
        """The value as a Python object. Words and `now()` are texts."""
        match self.kind:
            case LiteralKind.INT:
                return int(self.text)
            case LiteralKind.FLOAT:
                return float(self.text)
            case LiteralKind.BOOL:
                return self.text == "true"
            case _:
                return self.text


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its span."""

    text: str
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Argument:
    """`name = value` in an annotation or an index declaration."""

    name: str
    value: Literal
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name`, `@name(value)`, `@name(value, key=value)`. Only `@allow` takes a second positional value."""

    name: str
    values: tuple[Literal, ...] = ()
    arguments: tuple[Argument, ...] = ()
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class EnumValue:
    """One value of an enum, with an optional `@rename_from("old")`."""

    text: str
    annotations: tuple[Annotation, ...] = ()
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TypeExpression:
    """The type of a property as written. Enum values keep their order."""

    scalar: Scalar
    nullable: bool = False
    list: bool = False
    enum_values: tuple[EnumValue, ...] | None = None
    dim: int | None = None
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Property:
    name: Name
    type: TypeExpression
    annotations: tuple[Annotation, ...] = ()
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class KeyConstraint:
    fields: tuple[Name, ...]
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class UniqueConstraint:
    fields: tuple[Name, ...]
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class IndexConstraint:
    fields: tuple[Name, ...]
    options: tuple[Argument, ...] = ()
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    property: Name
    min: Literal | None
    max: Literal | None
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    property: Name
    pattern: Literal
    span: Span = field(default=_NOWHERE, compare=False)


Constraint = KeyConstraint | UniqueConstraint | IndexConstraint | RangeConstraint | CheckConstraint
Member = Property | Constraint


@dataclass(frozen=True, slots=True)
class Cardinality:
    """The bounds of `@card` and `@card_in`: `min..` or `min..max`."""

    min: int
    max: int | None
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Interface:
    name: Name
    members: tuple[Property, ...] = ()
    head: Span = field(default=_NOWHERE, compare=False)
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Node:
    """A node type. `head` is the span up to the opening brace of the body, inclusive."""

    name: Name
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[Name, ...] = ()
    members: tuple[Member, ...] = ()
    head: Span = field(default=_NOWHERE, compare=False)
    span: Span = field(default=_NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge type. An empty body equals a missing body."""

    name: Name
    from_type: Name
    to_type: Name
    card: Cardinality | None = None
    card_in: Cardinality | None = None
    annotations: tuple[Annotation, ...] = ()
    members: tuple[Member, ...] = ()
    head: Span = field(default=_NOWHERE, compare=False)
    span: Span = field(default=_NOWHERE, compare=False)


Declaration = Interface | Node | Edge


@dataclass(frozen=True, slots=True)
class Schema:
    declarations: tuple[Declaration, ...] = ()
    source: SourceText = field(default=SourceText(""), compare=False, repr=False)
    span: Span = field(default=_NOWHERE, compare=False)
