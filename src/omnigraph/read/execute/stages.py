"""Run the stages of a query: the rows of each stage are the input of the next one."""

# See docs/decisions/0221-stages-pass-rows-on.md

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.read.columns.entity_table import EntityTable, as_one_array
from omnigraph.read.columns.numbers import NOTHING, Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.rows.frame import Binding, Frame

_TYPE = "#type of stage variable {}"
"""Name of the column with the types of a variable that goes on."""


def stage_text(stage: ReadQuery) -> str:
    """The variables and values that a stage passes on, as `explain` prints them."""
    carried = stage.carried or ()
    return ", ".join(f"${name}" if name in carried else name for name in stage.columns)


def as_query(stage: ReadQuery) -> ReadQuery:
    """A query that returns the rows of a stage as a table. A variable that goes on becomes its id and its type."""
    carried = stage.carried or ()
    types = tuple(ir.OutColumn(_TYPE.format(name), ir.TypeOf(name, nullable=True)) for name in carried)
    return ReadQuery(replace(stage.read, columns=(*stage.read.columns, *types)))


def rows_of_table(table: pa.Table, stage: ReadQuery, before: Frame | None, context: Context) -> Frame:
    """Convert the table of `as_query` to the rows that the stage passes on.

    Args:
        table: the table.
        stage: the stage.
        before: the rows of the stage before it; None if there is none.
        context: the state of the running read.
    """
    carried = stage.carried or ()
    types = {} if before is None else {name: binding.tables for name, binding in before.bindings.items()}
    types |= dict(_tables(stage.read.match, context))
    columns = {name: as_one_array(table.column(name)) for name in table.column_names}
    return Frame(
        table.num_rows,
        {name: _binding(columns[name], columns[_TYPE.format(name)], types[name]) for name in carried},
        searching=context.search,
        values={column.name: columns[column.name] for column in stage.read.columns if column.name not in carried},
    )


def _tables(block: ir.Block, context: Context) -> Iterator[tuple[str, tuple[EntityTable, ...]]]:
    """The tables of the types of each variable that a block and its optional blocks bind."""
    for node in block.nodes:
        yield node.name, tuple(map(context.tables.nodes, node.types))
    for expand in block.expands:
        if expand.edge_var is not None:
            yield expand.edge_var.name, tuple(map(context.tables.edges, expand.edge_var.types))
    for optional in block.optionals:
        yield from _tables(optional, context)


def _binding(ids: pa.Array, kinds: pa.Array, tables: tuple[EntityTable, ...]) -> Binding:
    """The entities with the given ids and types."""
    if len(tables) == 1:
        return Binding(tables, tables[0].find(ids))
    numbers: Numbers = np.full(len(ids), NOTHING, np.int64)
    type_index: Numbers = np.zeros(len(ids), np.int64)
    for place, table in enumerate(tables):
        mine = pc.equal(kinds, table.type_name).fill_null(False)
        rows = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
        numbers[rows] = table.find(ids.take(pa.array(rows)))
        type_index[rows] = place
    return Binding(tables, numbers, type_index)
