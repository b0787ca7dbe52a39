"""Estimates the cost of each step of a schema change: the bytes that it reads and writes, from the sizes of columns."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.manifest import TablePin
from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Check, Range, Unique
from omnigraph.lang.schema.migrate import Plan
from omnigraph.lang.schema.migrate.steps import (
    AddConstraint,
    AddProperty,
    ChangeCardinality,
    ChangeConstraint,
    ChangeNullability,
    ChangePropertyType,
    NarrowEnum,
    RenameEnumValue,
    Step,
    Tier,
    WidenProperty,
)
from omnigraph.lang.schema.type_key import type_key
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.tables import TableStorage

_WIDTHS = {
    Scalar.BOOL: 1,
    Scalar.I32: 4,
    Scalar.U32: 4,
    Scalar.F32: 4,
    Scalar.DATE: 4,
    Scalar.I64: 8,
    Scalar.U64: 8,
    Scalar.F64: 8,
    Scalar.DATETIME: 8,
}


@dataclass(frozen=True, slots=True)
class StepCost:
    """The estimated cost of a step.

    Attributes:
        bytes_read: bytes of stored columns that the step reads.
        bytes_written: bytes of new columns, before compression.
    """

    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def metadata_only(self) -> bool:
        """Whether the step neither reads nor writes rows."""
        return self.bytes_read == 0 and self.bytes_written == 0

    def to_json(self) -> dict[str, int | bool]:
        return {
            "metadata_only": self.metadata_only,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
        }

    def __str__(self) -> str:
        if self.metadata_only:
            return "metadata only"
        parts = [("reads", self.bytes_read), ("writes", self.bytes_written)]
        return ", ".join(f"{verb} {_size(size)}" for verb, size in parts if size)

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.bytes_read + other.bytes_read, self.bytes_written + other.bytes_written)


class Costs:
    """Estimates the costs of steps. Column sizes are read once per table, and only if a step needs them.

    Args:
        tables: the table storage.
        pins: the stored tables.
        names: the former name of each type that already existed.
        before: the accepted schema.
        after: the new schema.
    """

    def __init__(
        self,
        tables: TableStorage,
        pins: Mapping[str, TablePin],
        names: Mapping[tuple[TypeKind, str], str],
        before: AcceptedSchema,
        after: AcceptedSchema,
    ) -> None:
        self._tables = tables
        self._pins = pins
        self._names = names
        self._before = before
        self._after = after
        self._sizes: dict[str, dict[str, int]] = {}

    def of(self, plan: Plan) -> tuple[StepCost, ...]:
        """The cost of each step."""
        return tuple(self._cost(step) for step in plan.steps)

    def _cost(self, step: Step) -> StepCost:
        match step:
            case AddProperty() if step.type_kind is not TypeKind.INTERFACE:
                return self._added(step)
            case WidenProperty():
                pin = self._pin(step.type_kind, step.type_name)
                read = self._read(step.type_kind, step.type_name, (step.property_name,))
                width = _width(step.to)
                written = 2 * read if step.to.list else 0 if pin is None else pin.row_count * width
                return StepCost(read, written)
            case RenameEnumValue():
                read = self._read(step.type_kind, step.type_name, (step.property_name,))
                return StepCost(read, read)
        return StepCost(self._checked(step)) if step.tier is Tier.VALIDATED else StepCost()

    def _checked(self, step: Step) -> int:
        """Bytes that the check of a step reads."""
        match step:
            case ChangeNullability() | NarrowEnum() | ChangePropertyType():
                return self._read(step.type_kind, step.type_name, ("id", step.property_name))
            case AddConstraint(constraint=Unique(fields)):
                return self._read(step.type_kind, step.type_name, ("id", *fields))
            case AddConstraint(constraint=Range(name) | Check(name)) | ChangeConstraint(to=Range(name) | Check(name)):
                return self._read(step.type_kind, step.type_name, ("id", name))
            case ChangeCardinality():
                edge = self._after.catalog.edges[step.type_name]
                node = edge.from_type if step.side == "src" else edge.to_type
                ends = self._read(TypeKind.EDGE, step.type_name, (step.side,))
                return ends + self._read(TypeKind.NODE, node, ("id",))
        return 0

    def _added(self, step: AddProperty) -> StepCost:
        pin = self._pin(step.type_kind, step.type_name)
        if pin is None or pin.row_count == 0:
            return StepCost()
        prop = self._after.catalog.declared(step.type_kind, step.type_name).properties[step.property_name]
        if prop.embed is not None:
            read = self._read(step.type_kind, step.type_name, (prop.embed.source,))
            return StepCost(read, pin.row_count * _width(step.property_type))
        if step.default is None or step.property_type.nullable:
            return StepCost()
        text = step.default.value
        width = len(text.encode()) if isinstance(text, str) else _width(step.property_type)
        return StepCost(0, pin.row_count * width)

    def _pin(self, kind: TypeKind, name: str) -> TablePin | None:
        former = self._names.get((kind, name))
        return None if former is None else self._pins[type_key(kind, former)]

    def _read(self, kind: TypeKind, name: str, columns: tuple[str, ...]) -> int:
        """The size of stored columns in bytes. The columns are given by their names after the change."""
        pin = self._pin(kind, name)
        if pin is None or pin.row_count == 0:
            return 0
        if pin.key not in self._sizes:
            self._sizes[pin.key] = self._tables.at(pin.ref).column_bytes()
        numbers = {
            number: old for old, number in self._before.identity(kind, self._names[kind, name]).properties.items()
        }
        mine = self._after.identity(kind, name).properties
        stored = [numbers.get(mine[column]) if column in mine else column for column in columns]
        return sum(self._sizes[pin.key].get(column, 0) for column in stored if column is not None)


def _width(type_: ValueType) -> int:
    """Bytes of one value of a fixed-width type; a guess for others."""
    if type_.is_vector:
        return 4 * (type_.dim or 0)
    return _WIDTHS.get(type_.scalar, 16)


def _size(size: int) -> str:
    for unit, width in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= width:
            return f"{size / width:,.1f} {unit}"
    return f"{size} bytes"
