"""The types that both languages share."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from omnigraph.dataclass import dataclass

MAX_VECTOR_DIM = 2_147_483_647


class Scalar(StrEnum):
    """A scalar type. The value of each enum member is the name of the type in both languages."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"
    VECTOR = "Vector"

    @property
    def is_integer(self) -> bool:
        return self in INTEGERS

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def is_numeric(self) -> bool:
        return self in NUMERICS


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMERICS = INTEGERS | FLOATS

INTEGER_RANGES: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}

WRITTEN_SCALARS: dict[str, Scalar] = {s.value: s for s in Scalar if s is not Scalar.VECTOR}
"""The scalar types that are written with their name alone (`Vector` needs a dimension)."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a property, a parameter or an expression.

    Attributes:
        scalar: the type of the value, or of each item of a list.
        nullable: whether null is allowed.
        list: whether it is a list of `scalar`.
        enum_values: the values of an enum, sorted; otherwise None.
        dim: the dimension of a `Vector`; otherwise None.
    """

    scalar: Scalar
    nullable: bool = False
    list: bool = False
    enum_values: tuple[str, ...] | None = None
    dim: int | None = None

    def with_nullable(self, nullable: bool) -> ValueType:
        return self if self.nullable == nullable else replace(self, nullable=nullable)

    @property
    def item(self) -> ValueType:
        """The type of a list item. The type itself if it is not a list."""
        return ValueType(self.scalar, False, False, self.enum_values, self.dim)

    @property
    def is_vector(self) -> bool:
        return self.scalar is Scalar.VECTOR

    @property
    def is_enum(self) -> bool:
        return self.enum_values is not None

    @property
    def is_plain_scalar(self) -> bool:
        """Whether this is not a list, a vector or a blob. Comparisons and keys need such types."""
        return not self.list and self.scalar not in (Scalar.VECTOR, Scalar.BLOB)

    def __str__(self) -> str:
        if self.enum_values is not None:
            text = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            text = f"Vector({self.dim})"
        else:
            text = self.scalar.value
        if self.list:
            text = f"[{text}]"
        return text + "?" if self.nullable else text
