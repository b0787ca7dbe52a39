"""The result of an algorithm: as an Arrow table, as a DataFrame, or written to a property of the nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.engines import Engine, SparkOptions
from omnigraph.engine.load import load
from omnigraph.engine.request_options import ExecutionOptions
from omnigraph.engine.requests import LoadRequest
from omnigraph.errors import InputError, cut
from omnigraph.graph.graph import Graph
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.type_key import node_key
from omnigraph.lang.types import Scalar
from omnigraph.pipeline.analytics.network import TypeSelection
from omnigraph.pipeline.spark.session import Session
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.write.receipt import LoadMode, LoadReceipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PROPERTY_TYPES = {
    pa.float64(): (Scalar.F64, Scalar.F32),
    pa.int64(): (Scalar.I64, Scalar.I32, Scalar.U64, Scalar.U32),
    pa.utf8(): (Scalar.STRING,),
}
"""For each type of computed values, the property types that can store them."""


class Outcome(ABC):
    """The values that an algorithm computed for the nodes of a snapshot.

    Attributes:
        name: the name of the column with the values.
    """

    def __init__(self, target: tuple[Graph, Snapshot, TypeSelection], name: str) -> None:
        self._graph, self._snapshot, self._selection = target
        self.name = name

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that was analysed."""
        return self._snapshot

    @property
    @abstractmethod
    def table(self) -> pa.Table:
        """All rows, ordered by type name and id."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the table."""

    @abstractmethod
    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame."""

    def write(
        self, property: str, *, branch: str, message: str | None = None, idempotency_key: str | None = None
    ) -> LoadReceipt:
        """Write the values to a property of the nodes, as one commit.

        The head of the branch must be the analysed commit. If the branch does not exist, it is created at that commit.

        Args:
            property: a property that all of the node types have.
            branch: the target branch.
            message: the message of the commit.
            idempotency_key: if the branch already has a commit with this key, nothing is written.

        Raises:
            InputError: a node type does not have the property, the property has the wrong type, or a node has several
                values.
            PreconditionFailedError: the branch has another head.
        """
        if self.schema.names[0] != "type":
            raise InputError(
                "distances cannot be written to a property: a node has one distance per source",
                hint="filter the table by one source, and load its rows with Graph.load",
            )
        types = self._check(property)
        if branch not in self._graph.branches:
            self._graph.branches.create(branch, commit=self._snapshot.commit.id)
        request = LoadRequest(
            mode=LoadMode.MERGE,
            branch=branch,
            expect_head=self._snapshot.commit.id,
            message=message,
            idempotency_key=idempotency_key,
            embed=False,
            **self._engine,
        )
        return load(self._graph.session, {node_key(name): self._rows(name, property) for name in types}, request)

    @property
    @abstractmethod
    def _engine(self) -> ExecutionOptions:
        """The engine that loads the rows."""

    @abstractmethod
    def _rows(self, name: str, property: str) -> object:
        """The entities of a type in the order of ids, with the computed values in a property."""

    def _check(self, property: str) -> list[str]:
        """The non-empty node types. Checks that all of them have a suitable property."""
        catalog = self._graph.session.schemas.at(self._snapshot).catalog
        values = self.schema.field(self.name).type
        for name in self._selection.nodes:
            declared = catalog.nodes[name].properties
            found = declared.get(property)
            if found is None:
                raise InputError(
                    f"{name} has no property '{cut(property)}'", hint=did_you_mean(property, list(declared))
                )
            if found.type.list or found.type.enum_values or found.type.scalar not in _PROPERTY_TYPES[values]:
                value_type = _PROPERTY_TYPES[values][0]
                raise InputError(f"{name}.{property} has type {found.type}, but the {self.name} has type {value_type}")
        return [name for name in self._selection.nodes if self._snapshot.pin(node_key(name)).row_count]


def _with(part: TypeExport, property: str, values: pa.Array) -> Iterator[pa.RecordBatch]:
    """The entities of a type in the order of ids, with the given values in one property."""
    column = part.schema.get_field_index(property)
    first = 0
    for batch in part.batches():
        columns = batch.columns
        columns[column] = values.slice(first, batch.num_rows)
        first += batch.num_rows
        yield pa.record_batch(columns, schema=part.schema)


class TableOutcome(Outcome):
    """A result that was computed in this process."""

    def __init__(self, target: tuple[Graph, Snapshot, TypeSelection], name: str, table: pa.Table) -> None:
        super().__init__(target, name)
        self._table = table

    @property
    def table(self) -> pa.Table:
        return self._table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self._table)

    @property
    def _engine(self) -> ExecutionOptions:
        return {"engine": Engine.LOCAL}

    def _rows(self, name: str, property: str) -> pa.RecordBatchReader:
        accepted = self._graph.session.schemas.at(self._snapshot)
        (part,) = [p for p in exported(self._snapshot, accepted, name) if p.key == node_key(name)]
        kind = arrow_type(accepted.catalog.nodes[name].properties[property].type)
        values = self.table.filter(pc.equal(self.table["type"], name))[self.name].cast(kind).combine_chunks()
        return pa.RecordBatchReader.from_batches(part.schema, _with(part, property, values))


class FrameOutcome(Outcome):
    """A result that was computed on Spark. The rows stay there until `table` is read."""

    def __init__(
        self, target: tuple[Graph, Snapshot, TypeSelection], name: str, frame: DataFrame, session: Session
    ) -> None:
        super().__init__(target, name)
        self._frame = frame
        self._session = session

    @cached_property
    def table(self) -> pa.Table:
        return self._frame.toArrow().cast(self.schema)

    @property
    def schema(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return pa.schema([pa.field(field.name, field.type) for field in to_arrow_schema(self._frame.schema)])

    def frame(self, spark: SparkSession) -> DataFrame:
        return self._frame

    @property
    def _engine(self) -> ExecutionOptions:
        return {"engine": Engine.SPARK, "spark": SparkOptions(self._session)}

    def _rows(self, name: str, property: str) -> DataFrame:
        """The entities of a type in the order of ids, joined with the computed values."""
        from pyspark.sql import functions as sql

        from omnigraph.pipeline.frames import type_frame

        entities = type_frame(self._session.spark, self._snapshot, node_key(name))
        found = self._frame.where(sql.col("type") == name).select("id", sql.col(self.name).alias(property))
        return entities.drop(property).join(found, "id").select(*entities.columns).orderBy("id")
