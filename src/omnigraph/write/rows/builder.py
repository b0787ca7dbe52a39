"""The row builder: converts input columns to the columns of a table, with defaults and ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed import Embedder, Tally, embed_column
from omnigraph.errors import Problem
from omnigraph.lang.arrow import arrow_schema, arrow_type
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property
from omnigraph.lang.temporal import MS_PER_DAY, parse_date, parse_datetime
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.blobs import row_schema
from omnigraph.storage.lru_cache import LruCache
from omnigraph.write.rows.convert import Report, convert, row_type
from omnigraph.write.rows.identity import derived_ids, generated_ids
from omnigraph.write.rows.problems import SHOWN, Problems
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rows.values import NO_ID, Fault

_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
_ENDS = {"src": "from", "dst": "to"}
_STRING = ValueType(Scalar.STRING)
_Layout = tuple[pa.Schema, tuple[str, ...] | None]
_layouts: LruCache[tuple[AcceptedSchema, _Layout]] = LruCache(256)


def _layout(accepted: AcceptedSchema, kind: TypeKind, name: str) -> _Layout:
    """The columns of the rows of a type, and the order of its key. Cached: every statement builds rows."""
    key = (id(accepted), kind, name)
    found = _layouts.get(key)
    if found is None or found[0] is not accepted:
        layout = row_schema(arrow_schema(accepted, kind, name)), accepted.key_order(kind, name)
        found = _layouts.put(key, (accepted, layout))
    return found[1]


class RowBuilder:
    """Builds the rows of one type.

    Args:
        accepted: the accepted schema.
        kind: node or edge.
        name: the type.
        now: the time of the request in milliseconds, for `now()`.
        problems: collects wrong values.
        embedder: creates the client of the embedding model, for missing `@embed` vectors; None does not compute them.
        new_ids: generates ids for entities that have neither a key nor an id.
        tally: counts the texts that the write embeds.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        kind: TypeKind,
        name: str,
        now: int,
        problems: Problems,
        embedder: Callable[[], Embedder] | None = None,
        new_ids: Callable[[int], pa.Array] = generated_ids,
        tally: Tally | None = None,
    ) -> None:
        self.type: NodeType | EdgeType = accepted.catalog.declared(kind, name)
        self.kind = kind
        self.schema, self.key_order = _layout(accepted, kind, name)
        self.now = now
        self.problems = problems
        self.embedder = embedder
        self.new_ids = new_ids
        self.tally = tally

    def build(
        self, raw: Mapping[str, pa.Array], origin: Origin, absent: Mapping[str, pa.Array] | None = None
    ) -> pa.Table:
        """Build rows with the columns of the table. The rows are not valid if `problems` has entries.

        Args:
            raw: the columns by property name, with `id`, and `from` and `to` for edges.
            origin: the location of each row.
            absent: for each nullable property with a default or a computed value, the mask of the rows whose input does
                not mention the property. Other nulls are explicit.

        Raises:
            EmbeddingError: vectors cannot be computed.
        """
        absent = absent or {}
        count = len(origin.records)
        self._refuse_unknown(raw, origin)
        columns = {
            name: self._property(prop, raw.get(name), origin, absent.get(name))
            for name, prop in self.type.properties.items()
            if not self._is_computed(prop)
        }
        if self.kind is TypeKind.EDGE:
            for column, written in _ENDS.items():
                columns[column] = self._required_text(written, raw.get(written), origin)
        columns["id"] = self._ids(raw.get("id"), columns, count, origin)
        # Vectors are computed last, because a call of an embedding model may cost money.
        for name, prop in self.type.properties.items():
            if self._is_computed(prop):
                columns[name] = self._vectors(prop, raw.get(name), columns, origin, absent.get(name))
        return pa.table([columns[field.name] for field in self.schema], schema=self.schema)

    def given(self, raw: Mapping[str, pa.Array], origin: Origin) -> dict[str, pa.Array]:
        """Convert only the given columns, for the statements of a mutation.

        Defaults are not applied, so null is refused where a value is required.
        """
        columns = {}
        for name, values in raw.items():
            prop = self.type.properties.get(name)
            if prop is None:  # an endpoint of an edge
                columns[name] = self._required_text(name, values, origin)
                continue
            columns[name], wrong = self._converted(prop, values, origin)
            if not prop.type.nullable and columns[name].null_count:
                self._report(name, origin)(_missing(columns[name], wrong), "is required")
        return columns

    def input_values(self, raw: Mapping[str, pa.Array], origin: Origin) -> dict[str, pa.Array]:
        """Convert only the given columns. Null is allowed, even for required properties."""
        self._refuse_unknown(raw, origin)
        columns = {}
        for name, values in raw.items():
            prop = self.type.properties.get(name)
            if prop is not None:
                columns[name] = self._converted(prop, values, origin)[0]
            elif name in ("id", *_ENDS.values()):
                columns[name] = convert(values, _STRING, self._report(name, origin))
        return columns

    def _refuse_unknown(self, raw: Mapping[str, pa.Array], origin: Origin) -> None:
        known = [*self.type.properties, "id", *(_ENDS.values() if self.kind is TypeKind.EDGE else ())]
        for name, column in raw.items():
            if name not in known:
                hint = did_you_mean(name, known)
                message = "there is no such property" + (f"; {hint}" if hint else "")
                self._report(name, origin)(pa.array(np.ones(len(column), bool)), message)

    def _property(self, prop: Property, given: pa.Array | None, origin: Origin, absent: pa.Array | None) -> pa.Array:
        report = self._report(prop.name, origin)
        count = len(origin.records)
        if given is None:
            column = pa.nulls(count, row_type(prop.type))
            if prop.default is not None:
                return _filled(column, prop, self.now)
        else:
            column, wrong = self._converted(prop, given, origin)
            if prop.default is not None:
                if not prop.type.nullable:
                    column = _filled(column, prop, self.now)
                elif absent is not None:
                    column = pc.if_else(absent, _filled(column, prop, self.now), column)
            if not prop.type.nullable and column.null_count:
                report(_missing(column, wrong), "is required")
            return column
        if not prop.type.nullable:
            report(pa.array(np.ones(count, bool)), "is required")
        return column

    def _is_computed(self, prop: Property) -> bool:
        return self.embedder is not None and prop.embed is not None

    def _vectors(
        self,
        prop: Property,
        given: pa.Array | None,
        columns: Mapping[str, pa.Array],
        origin: Origin,
        absent: pa.Array | None,
    ) -> pa.Array:
        """A column of vectors. Missing vectors are computed from their texts, like a default."""
        assert prop.embed is not None
        assert self.embedder is not None
        count = len(origin.records)
        texts = columns[prop.embed.source]
        if given is None:
            column, wanted = pa.nulls(count, row_type(prop.type)), pa.array(np.ones(count, bool))
        else:
            column, wrong = self._converted(prop, given, origin)
            if not prop.type.nullable:
                wanted = _missing(column, wrong)
            else:
                wanted = absent if absent is not None else pa.array(np.zeros(count, bool))
        blank = pc.equal(pc.utf8_trim_whitespace(texts), "")
        if not prop.type.nullable:
            # If the text is required, a missing text is already reported.
            without = blank.fill_null(self.type.properties[prop.embed.source].type.nullable)
            message = f"is required, and there is no text in '{prop.embed.source}' to compute it from"
            self._report(prop.name, origin)(pc.and_(wanted, without), message)
        computed = pc.and_(wanted, pc.invert(blank)).fill_null(False)
        if self.problems or not pc.any(computed).as_py():
            return column  # there are problems, so nothing will be written; or no vector is missing
        texts = pc.if_else(computed, texts, None)
        return pc.coalesce(column, embed_column(self.embedder(), texts, prop, self.type.name, self.tally))

    def _converted(self, prop: Property, given: pa.Array, origin: Origin) -> tuple[pa.Array, _Mask]:
        """Convert a column to the type of its property. Returns the column, and a mask of the rows that do not fit."""
        return self._as(prop.type, prop.name, given, origin)

    def _as(self, kind: ValueType, name: str, given: pa.Array, origin: Origin) -> tuple[pa.Array, _Mask]:
        wrong = np.zeros(len(given), bool)
        report = self._report(name, origin)

        def note(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
            wrong[mask.to_numpy(zero_copy_only=False)] = True
            report(mask, message, fault)

        # The lenient reader keeps lists with null items.
        return convert(given, kind, note, null_items=self.problems.coerced is not None), wrong

    def _required_text(self, name: str, given: pa.Array | None, origin: Origin) -> pa.Array:
        values = pa.nulls(len(origin.records), pa.utf8()) if given is None else given
        column, wrong = self._as(_STRING, name, values, origin)
        if column.null_count:
            self._report(name, origin)(_missing(column, wrong), "is required")
        return column

    def _ids(self, given: pa.Array | None, columns: Mapping[str, pa.Array], count: int, origin: Origin) -> pa.Array:
        report = self._report("id", origin)
        written = None if given is None else convert(given, _STRING, report)
        if self.key_order is None:
            if written is None:
                return self.new_ids(count)
            absent = written.is_null()
            return pc.if_else(absent, self.new_ids(count), written) if pc.any(absent).as_py() else written
        derived = self.key_ids(columns)
        if written is not None:
            differs = pc.not_equal(written, derived).fill_null(False)
            report(differs, "differs from the id derived from the key")
        return derived

    def key_ids(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The ids derived from the key columns. Endpoints of an edge are named `src` and `dst`, or `from` and `to`."""
        assert self.key_order is not None
        members = []
        for name in self.key_order:
            prop = self.type.properties.get(name)
            written = name if name in columns else _ENDS[name]
            members.append((columns[written], _STRING if prop is None else prop.type))
        return derived_ids(members)

    def _report(self, name: str, origin: Origin) -> Report:
        """A function that reports rows to `problems`. It counts all rows, and describes only the first ones."""

        def report(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
            rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if len(rows) == 0:
                return
            if fault is Fault.TYPE and self.kind is TypeKind.EDGE and name in _ENDS.values():
                message += NO_ID
            records = origin.records[rows[:SHOWN]].tolist()
            shown = [Problem(r, origin.place(r), origin.subject(self.type.name, name), message) for r in records]
            self.problems.add_all(shown, len(rows))

        return report


def _missing(column: pa.Array, wrong: _Mask) -> pa.Array:
    """Mask of the nulls. Nulls in place of a wrong value are left out, because this value is already reported."""
    return pa.array(column.is_null().to_numpy(zero_copy_only=False) & ~wrong)


def _filled(column: pa.Array, prop: Property, now: int) -> pa.Array:
    """Replace nulls by the default of the property."""
    return column.fill_null(default_value(prop, now))


def default_value(prop: Property, now: int) -> pa.Scalar:
    """The default of a property in its Arrow type.

    Args:
        prop: a property with a default.
        now: the value of `now()` in milliseconds.
    """
    assert prop.default is not None
    value = now if prop.default.now else prop.default.value
    kind = arrow_type(prop.type)
    if prop.type.scalar is Scalar.DATETIME:
        moment = parse_datetime(value) if isinstance(value, str) else value
        return pa.array([moment], pa.int64()).view(kind)[0]
    if prop.type.scalar is Scalar.DATE:
        day = parse_date(value) if isinstance(value, str) else now // MS_PER_DAY
        return pa.array([day], pa.int32()).cast(kind)[0]
    return pa.scalar(value, kind)
