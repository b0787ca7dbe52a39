"""Converts the statements of a mutation and their values to steps. This does not read the graph.

Consecutive statements of one type that assign the same properties become one step with a row per statement. So a
query with a thousand inserts is as fast as a load of a thousand rows.
"""

# See docs/decisions/0043-a-mutation-says-null.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, Tally, embed_column
from omnigraph.errors import Problem
from omnigraph.evaluate import Request
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin

_KINDS = {ir.EntityKind.NODE: TypeKind.NODE, ir.EntityKind.EDGE: TypeKind.EDGE}


@dataclass(frozen=True, slots=True)
class InsertStep:
    """Inserts of one type that assign the same properties, with one row per statement.

    Attributes:
        columns: the assigned values by property, with `from` and `to` for edges.
        rows: the complete rows; None for a merge statement, whose rows depend on the stored rows.
        ids: the ids of the entities.
        fresh: whether the ids were generated for this request. Then no stored entity has them.
    """

    kind: TypeKind
    name: str
    mode: ir.InsertMode
    columns: Mapping[str, pa.Array]
    rows: pa.Table | None
    ids: pa.Array
    fresh: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """An update. Each of `columns` has one value, which all matching entities get."""

    kind: TypeKind
    name: str
    columns: Mapping[str, pa.Array]
    where: ir.Expr


@dataclass(frozen=True, slots=True)
class DeleteStep:
    """A delete."""

    kind: TypeKind
    name: str
    where: ir.Expr
    cascades: tuple[str, ...]


Step = InsertStep | UpdateStep | DeleteStep


def read_statements(
    accepted: AcceptedSchema, write: ir.Write, request: Request, embedder: Callable[[], Embedder], tally: Tally
) -> tuple[Step, ...]:
    """The steps of a mutation in order, with all values converted and all vectors computed.

    Args:
        accepted: the accepted schema.
        write: the statements.
        request: the parameters and the time of the request.
        embedder: creates the client of the embedding model. Called only if there is a text to embed.
        tally: counts the texts that the mutation embeds.

    Raises:
        BadRowsError: a value does not fit its property.
        EmbeddingError: a text cannot be embedded.
    """
    reader = _Reader(accepted, request, embedder, tally, many=len(write.statements) > 1)
    for number, statement in enumerate(write.statements, 1):
        reader.read(number, statement)
    return reader.steps()


@dataclass(slots=True)
class _Draft:
    """Statements of one type that assign the same properties. Their values are not yet converted."""

    kind: TypeKind
    name: str
    mode: ir.InsertMode | None
    shape: tuple[tuple[str, ValueType], ...]
    embeds: tuple[ir.EmbedOnWrite, ...]
    where: ir.Expr | None
    values: list[list[ir.ConstValue]]
    numbers: list[int] = field(default_factory=list)
    columns: dict[str, pa.Array] = field(default_factory=dict)

    def raw(self) -> dict[str, pa.Array]:
        columns = zip(*self.values, strict=True)
        return {name: _column(column, kind) for (name, kind), column in zip(self.shape, columns, strict=True)}


class _Reader:
    def __init__(
        self,
        accepted: AcceptedSchema,
        request: Request,
        embedder: Callable[[], Embedder],
        tally: Tally,
        *,
        many: bool,
    ) -> None:
        self.tally = tally
        self.accepted = accepted
        self.request = request
        self.embedder = embedder
        self.place: Callable[[int], str] = (lambda number: f"statement {number}") if many else (lambda number: "")
        self.problems = Problems()
        self._drafts: list[_Draft | DeleteStep] = []
        self._open: dict[tuple[TypeKind, str], _Draft] = {}
        self._builders: dict[tuple[TypeKind, str], RowBuilder] = {}

    def builder(self, kind: TypeKind, name: str) -> RowBuilder:
        found = self._builders.get((kind, name))
        if found is None:
            found = RowBuilder(
                self.accepted, kind, name, self.request.now, self.problems, self.embedder, tally=self.tally
            )
            self._builders[kind, name] = found
        return found

    def read(self, number: int, statement: ir.Statement) -> None:
        """Add a statement: to the last draft of its type if it assigns the same properties, else as a new draft."""
        if isinstance(statement, ir.Delete):
            kind = _KINDS[statement.entity]
            self._drafts.append(DeleteStep(kind, statement.type_name, statement.where, statement.cascades))
            return
        new = self._draft(statement)
        last = self._open.get((new.kind, new.name))
        if last is None or (last.mode, last.shape) != (new.mode, new.shape):
            last = self._open[new.kind, new.name] = new
            self._drafts.append(new)
        last.numbers.append(number)
        if last is not new:
            last.values += new.values
        if new.where is not None:
            self._open.clear()  # later statements must run after the update, so they cannot join an earlier draft

    def _draft(self, statement: ir.InsertNode | ir.InsertEdge | ir.Update) -> _Draft:
        """The draft of one statement."""
        assigned = [(assign.property, assign.value) for assign in statement.assigns]
        kind, mode, where = TypeKind.NODE, None, None
        embeds: tuple[ir.EmbedOnWrite, ...] = ()
        match statement:
            case ir.InsertNode():
                mode, embeds = statement.mode, statement.embeds
            case ir.InsertEdge():
                kind, mode = TypeKind.EDGE, statement.mode
                assigned = [("from", statement.source), ("to", statement.target), *assigned]
            case ir.Update():
                kind, embeds, where = _KINDS[statement.entity], statement.embeds, statement.where
        properties = self.builder(kind, statement.type_name).type.properties
        shape, values = [], []
        for name, expr in assigned:
            target = properties[name].type if name in properties else ir.STRING
            value, value_type = _fitted(self._value(expr), expr.type, target)
            shape.append((name, value_type))
            values.append(value)
        return _Draft(kind, statement.type_name, mode, tuple(shape), embeds, where, [values])

    def _value(self, expr: ir.Expr) -> ir.ConstValue:
        match expr:
            case ir.Now():
                return self.request.now
            case ir.Param():
                return self.request.params[expr.name]
            case ir.Const():
                return expr.value
        raise AssertionError(f"{expr} cannot be assigned")

    def steps(self) -> tuple[Step, ...]:
        drafts = [draft for draft in self._drafts if isinstance(draft, _Draft)]
        for draft in drafts:
            draft.columns = self.builder(draft.kind, draft.name).given(draft.raw(), self._origin(draft))
        self.problems.check()
        self._embed(drafts)
        self.problems.check()
        steps = tuple(self._step(draft) if isinstance(draft, _Draft) else draft for draft in self._drafts)
        self.problems.check()
        return steps

    def _origin(self, draft: _Draft) -> Origin:
        return Origin(np.array(draft.numbers, np.int64), self.place)

    def _embed(self, drafts: list[_Draft]) -> None:
        """Compute the vectors of `@embed` properties, with one call per property for all statements."""
        wanted: dict[tuple[str, ir.EmbedOnWrite], list[_Draft]] = {}
        for draft in drafts:
            for embed in draft.embeds:
                wanted.setdefault((draft.name, embed), []).append(draft)
        for (name, embed), group in wanted.items():
            texts = pa.concat_arrays([draft.columns[embed.source] for draft in group])
            target = self.builder(TypeKind.NODE, name).type.properties[embed.target]
            vectors, start = embed_column(self.embedder(), texts, target, name, self.tally), 0
            for draft in group:
                column = vectors.slice(start, len(draft.numbers))
                draft.columns[embed.target] = column
                start += len(column)
                if not target.type.nullable:
                    self._require(draft, embed, column)

    def _require(self, draft: _Draft, embed: ir.EmbedOnWrite, column: pa.Array) -> None:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            number = draft.numbers[row]
            message = f"is required, and there is no text in '{embed.source}' to compute it from"
            self.problems.add(Problem(number, self.place(number), f"{draft.name}.{embed.target}", message))

    def _step(self, draft: _Draft) -> InsertStep | UpdateStep:
        if draft.mode is None:
            assert draft.where is not None
            return UpdateStep(draft.kind, draft.name, draft.columns, draft.where)
        builder, origin = self.builder(draft.kind, draft.name), self._origin(draft)
        keyed = builder.key_order is not None
        if draft.mode is ir.InsertMode.MERGE:
            rows, ids = None, builder.key_ids(draft.columns)
        else:
            rows = builder.build(draft.columns, origin)
            ids = rows["id"].combine_chunks()
        return InsertStep(draft.kind, draft.name, draft.mode, draft.columns, rows, ids, not keyed, origin)


def _fitted(value: ir.ConstValue, value_type: ValueType, target: ValueType) -> tuple[ir.ConstValue, ValueType]:
    """A value and its type. A float without a fraction becomes an integer if the property is an integer."""
    value_type = ValueType(value_type.scalar, list=value_type.list, dim=value_type.dim)
    if value is None or not (value_type.scalar.is_float and target.scalar.is_integer):
        return value, value_type
    floats = value if isinstance(value, tuple) else (value,)
    whole = tuple(int(number) for number in floats if isinstance(number, float) and number.is_integer())
    for scalar in (Scalar.I64, Scalar.U64):
        low, high = INTEGER_RANGES[scalar]
        if len(whole) == len(floats) and all(low <= number <= high for number in whole):
            return whole if isinstance(value, tuple) else whole[0], ValueType(scalar, list=value_type.list)
    return value, value_type


def _column(values: tuple[ir.ConstValue, ...], kind: ValueType) -> pa.Array:
    """Values as an Arrow column for the conversion."""
    if kind.scalar is Scalar.BLOB:
        return pa.array(values, pa.utf8())
    return pa.array(values, pa.list_(pa.float64()) if kind.is_vector else arrow_type(kind))
