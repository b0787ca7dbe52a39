"""The operation descriptor of a query: its result columns, and the types that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar, ValueType


class ResultKind(StrEnum):
    """The kinds of result values that a client has to distinguish."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    BLOB = "blob"
    VECTOR = "vector"
    LIST = "list"


_KINDS = {
    Scalar.STRING: ResultKind.STRING,
    Scalar.BOOL: ResultKind.BOOL,
    Scalar.I32: ResultKind.INT,
    Scalar.U32: ResultKind.INT,
    Scalar.I64: ResultKind.BIGINT,
    Scalar.U64: ResultKind.BIGINT,
    Scalar.F32: ResultKind.FLOAT,
    Scalar.F64: ResultKind.FLOAT,
    Scalar.DATE: ResultKind.DATE,
    Scalar.DATETIME: ResultKind.DATETIME,
    Scalar.BLOB: ResultKind.BLOB,
    Scalar.VECTOR: ResultKind.VECTOR,
}


@dataclass(frozen=True, slots=True)
class ResultField:
    """One column of a result. `item_kind` is set for lists, `vector_dim` for vectors."""

    name: str
    kind: ResultKind
    nullable: bool
    item_kind: ResultKind | None = None
    vector_dim: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class TypeRef:
    """A node or edge type. Nodes sort before edges."""

    sort: int
    kind: str
    type_name: str

    @property
    def key(self) -> str:
        """The key of the type: `node:<Type>` or `edge:<Type>`."""
        return f"{self.kind}:{self.type_name}"


@dataclass(frozen=True, slots=True)
class Operation:
    """The result columns of a query, and the types that it reads and writes.

    `reads` may contain types that are not read; `writes` is exact.
    """

    result: tuple[ResultField, ...]
    reads: tuple[TypeRef, ...]
    writes: tuple[TypeRef, ...]

    def to_json(self) -> dict[str, list[dict[str, object]]]:
        return {
            "result": [_field_json(field) for field in self.result],
            "reads": [{"kind": ref.kind, "type_name": ref.type_name} for ref in self.reads],
            "writes": [{"kind": ref.kind, "type_name": ref.type_name} for ref in self.writes],
        }


def describe(query: ir.Query, catalog: Catalog) -> Operation:
    """The operation descriptor of a checked query."""
    body = query.body
    if isinstance(body, ir.Read):
        result = tuple(_field(column.name, _result_type(column)) for column in body.columns)
        matches = (*(stage.read.match for stage in body.stages), body.match)
        return Operation(result, _sorted({ref for match in matches for ref in _block_reads(match)}), ())
    reads: set[TypeRef] = set()
    writes: set[TypeRef] = set()
    for statement in body.statements:
        touched = set(_touched(statement))
        writes |= touched
        reads |= touched
        if isinstance(statement, ir.InsertEdge):
            edge = catalog.edges[statement.type_name]
            reads |= {_node(edge.from_type), _node(edge.to_type)}
    return Operation((), _sorted(reads), _sorted(writes))


def _result_type(column: ir.OutColumn) -> ValueType:
    """The result type of a column. Aggregates are nullable, because they are null for an empty group."""
    kind = column.expr.type
    return kind.with_nullable(True) if isinstance(column.expr, ir.Aggregate) else kind


def _field(name: str, kind: ValueType) -> ResultField:
    scalar = _KINDS[kind.scalar]
    if kind.list:
        return ResultField(name, ResultKind.LIST, kind.nullable, item_kind=scalar)
    return ResultField(name, scalar, kind.nullable, vector_dim=kind.dim)


def _field_json(field: ResultField) -> dict[str, object]:
    out: dict[str, object] = {"name": field.name, "kind": field.kind.value}
    if field.item_kind is not None:
        out["item_kind"] = field.item_kind.value
    if field.vector_dim is not None:
        out["vector_dim"] = field.vector_dim
    return out | {"nullable": field.nullable}


def _node(name: str) -> TypeRef:
    return TypeRef(0, "node", name)


def _edge(name: str) -> TypeRef:
    return TypeRef(1, "edge", name)


def _sorted(refs: set[TypeRef]) -> tuple[TypeRef, ...]:
    return tuple(sorted(refs))


def _block_reads(block: ir.Block) -> set[TypeRef]:
    refs = {_node(name) for node in block.nodes for name in node.types}
    for expand in block.expands:
        for step in expand.steps:
            refs |= {_edge(step.edge), _node(step.left_type), _node(step.right_type)}
    for inner in (*block.optionals, *block.negations, *(value.block for value in block.values)):
        refs |= _block_reads(inner)
    return refs


def _touched(statement: ir.Statement) -> Iterator[TypeRef]:
    match statement:
        case ir.InsertNode():
            yield _node(statement.type_name)
        case ir.InsertEdge():
            yield _edge(statement.type_name)
        case ir.Update() | ir.Delete():
            is_edge = statement.entity is ir.EntityKind.EDGE
            yield (_edge if is_edge else _node)(statement.type_name)
            if isinstance(statement, ir.Delete):
                yield from map(_edge, statement.cascades)
