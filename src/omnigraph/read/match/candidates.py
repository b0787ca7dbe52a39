"""Candidate nodes of each variable: those that satisfy the conditions that refer to this variable only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.read.columns.distinct_values import DistinctValues, distinct_values
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import Mask, Numbers
from omnigraph.read.context.context import Context
from omnigraph.read.context.operator_name import OperatorName
from omnigraph.read.match.index_lookup import index_lookup
from omnigraph.read.match.key_lookup import selects_by_id
from omnigraph.read.query.block import QueryBlock, Side, side_at
from omnigraph.read.query.expression import Expression
from omnigraph.read.rows.evaluate import is_true
from omnigraph.read.rows.frame import Binding, Frame, true_rows

SPARSE_RATIO = 16
"""Selects the method that converts the result of a condition from a mask to entity numbers.

If fewer than one in `SPARSE_RATIO` entities satisfy it, Arrow converts the bitmap; else NumPy scans a boolean array.
"""

MAX_EXACT_COUNT_NODES = 20_000
"""With at most this number of nodes, conditions are evaluated while planning, to get the exact number of candidates."""


class Candidates:
    """Candidate nodes of the variables of a block. Conditions are evaluated on first use.

    Args:
        block: the block.
        context: the state of the running read: snapshot, parameters and budget.
        estimate: returns the estimated number of candidates of a variable.

    Attributes:
        narrowed: for each walk along which candidates were narrowed (see `narrow`), the number of nodes that it was
            walked from.
        changes: how often candidates were set.
        narrowed_along: the traversals that candidates were narrowed along last, and `changes` at that time; None if
            they were not narrowed.
    """

    def __init__(
        self, block: QueryBlock, context: Context, estimate: Callable[[Candidates, str], float] | None = None
    ) -> None:
        self._block = block
        self._context = context
        self._estimate = estimate
        self._tables: dict[str, tuple[EntityTable, ...]] = {}
        self._chosen: dict[str, tuple[Numbers, ...]] = {}
        self._own = dict(block.own_conditions)
        self._edges: dict[tuple[str, str, Side], int] = {}
        self.narrowed: dict[tuple[str, str, ir.Step], int] = {}
        self.changes = 0
        self.narrowed_along: tuple[frozenset[int], int] | None = None
        self._found_by = OperatorName.WHERE

    def tables(self, name: str) -> tuple[EntityTable, ...]:
        """Entity tables of the node types of a variable."""
        if name not in self._tables:
            self._tables[name] = tuple(self._context.tables.nodes(t) for t in self._block.nodes[name].types)
        return self._tables[name]

    def total(self, name: str) -> int:
        """Number of all nodes of the node types of a variable."""
        tables = self.tables(name)
        return tables[0].count if len(tables) == 1 else sum(table.count for table in tables)

    def of(self, name: str) -> tuple[Numbers, ...]:
        """Numbers of the candidate nodes of a variable, one array for each of its types."""
        if name not in self._own:
            return tuple(table.all_numbers() for table in self.tables(name))
        if name not in self._chosen:
            trace = self._context.trace
            if trace is None:
                self._evaluate(name)
            else:
                estimate = None if self._estimate is None else self._estimate(self, name)
                with trace.step(OperatorName.WHERE, self._text(name), estimate) as entry:
                    self._evaluate(name)
                entry.action = self._found_by
                entry.rows = sum(map(len, self._chosen[name]))
                entry.size = sum(numbers.nbytes for numbers in self._chosen[name])
        return self._chosen[name]

    def _text(self, name: str) -> str:
        typed = f"${name}: {' | '.join(self._block.nodes[name].types) or 'nothing'}"
        conditions = " and ".join(condition.text for condition in self._own.get(name, ()))
        return f"{typed} where {conditions}" if conditions else typed

    def _evaluate(self, name: str) -> None:
        self._set(name, tuple(self._satisfying(name, table) for table in self.tables(name)))

    def _set(self, name: str, chosen: tuple[Numbers, ...]) -> None:
        self._chosen[name] = chosen
        self.changes += 1

    def _satisfying(self, name: str, table: EntityTable) -> Numbers:
        numbers, conditions = index_lookup(self._own[name], table, self._context)
        if len(conditions) < len(self._own[name]):
            self._found_by = OperatorName.LOOKUP
        else:
            self._found_by = OperatorName.WHERE if len(numbers) == table.count else OperatorName.INDEX
        return self._filter(name, table, numbers, conditions)

    def _filter(self, name: str, table: EntityTable, numbers: Numbers, conditions: Sequence[Expression]) -> Numbers:
        """The given nodes that satisfy all conditions."""
        context = self._context
        context.budget.spend(len(numbers))
        todo = _cheapest_first(conditions, table)
        while todo:
            condition = todo.pop(0)
            if len(numbers) == table.count and (values := _tested_values(condition, table)) is not None:
                numbers = self._by_value(condition, name, table, values)
                continue
            frame = Frame(len(numbers), {name: Binding((table,), numbers)}, searching=context.search)
            mask = is_true(condition, frame, context.request)
            while todo and condition.range_property is not None and todo[0].range_property == condition.range_property:
                # Both bounds of a range are evaluated on the same nodes, so that the values are read only once.
                mask = pc.and_(mask, is_true(todo.pop(0), frame, context.request))
            numbers = _where(numbers, mask)
        return numbers

    def _by_value(self, condition: Expression, name: str, table: EntityTable, values: DistinctValues) -> Numbers:
        """All nodes that satisfy a condition. It is evaluated once for each distinct value of its property."""
        (column,) = condition.columns
        binding = Binding((table,), np.zeros(len(values.values), np.int64))
        frame = Frame(len(values.values), {name: binding}, _columns={column: values.values})
        kept = np.flatnonzero(true_rows(is_true(condition, frame, self._context.request)))
        if len(kept) == 1:
            found = values.codes == kept[0]
        else:
            allowed = np.zeros(len(values.values), bool)
            allowed[kept] = True
            found = allowed.take(values.codes)
        if table.live is not None:
            found &= table.live
        return np.flatnonzero(found)

    def restricts(self, name: str) -> bool:
        """Whether some nodes of a variable are not candidates: because of its own conditions, or for another reason."""
        return name in self._own

    def narrow(self, name: str, allowed: Mask) -> None:
        """Keep only the candidates that a mask allows, by node number. The variable must have one node type."""
        (numbers,) = self.of(name)
        kept = allowed.take(numbers)
        if not kept.all():
            self.choose(name, numbers[kept])

    def choose(self, name: str, numbers: Numbers) -> None:
        """Set the candidates of a variable, which must have one node type."""
        self._set(name, (numbers,))
        self._own.setdefault(name, ())

    def only(self, name: str, chosen: tuple[Numbers, ...]) -> Candidates:
        """A copy of this object in which a variable has only the given candidates.

        Changing the copy does not change the original.
        """
        found = copy(self)
        found._chosen = {**self._chosen, name: chosen}
        found._own = {name: (), **self._own}
        found.narrowed = {}
        found.narrowed_along = None
        return found

    def fraction(self, name: str) -> float:
        """Fraction of the nodes of a variable that are candidates; 1 if it is unknown and expensive to compute."""
        size = self.cheap_size(name)
        return 1.0 if size is None else size / max(self.total(name), 1)

    def adopt(self, name: str, other: Candidates, there: str) -> None:
        """Keep only nodes that are candidates of a variable of another block, if those are known.

        Both variables must have the same node types. If there are several, the conditions of this block are evaluated.
        """
        if len(self.tables(name)) == 1 and other.restricts(there) and other.is_chosen(there):
            self.narrow_to(name, other.of(there)[0])

    def is_chosen(self, name: str) -> bool:
        """Whether the candidates of a variable are known: its conditions were evaluated, or it has none."""
        return name not in self._own or name in self._chosen

    def cheap_size(self, name: str) -> int | None:
        """Number of candidates of a variable; None if it is unknown and expensive to compute."""
        if self.is_chosen(name) or self.total(name) <= MAX_EXACT_COUNT_NODES or self._selects_by_id(name):
            return self.size(name)
        return None

    def estimated_size(self, name: str) -> float:
        """Estimated number of candidates of a variable, without evaluating its conditions."""
        return self.total(name) if self._estimate is None else self._estimate(self, name)

    def _selects_by_id(self, name: str) -> bool:
        own = self._own[name]
        return all(selects_by_id(own, table, self._context) for table in self.tables(name))

    def own(self, name: str) -> Sequence[Expression]:
        """Conditions that refer to this variable and to no other variable."""
        return self._own.get(name, ())

    def knows(self, name: str) -> bool:
        """Whether the block introduces a variable."""
        return name in self._block.nodes

    def among(self, name: str, numbers: Numbers) -> Numbers:
        """The given nodes that satisfy the conditions on a variable, which must have one node type."""
        (table,) = self.tables(name)
        return self._filter(name, table, numbers, self._own.get(name, ()))

    def narrow_to(self, name: str, numbers: Numbers) -> None:
        """Keep only candidates that are among the given nodes (ascending). The variable must have one node type."""
        if self.is_chosen(name):
            kept = self.masks(name)[0]
            self._set(name, (numbers if kept is None else numbers[kept.take(numbers)],))
        else:
            self._set(name, (self.among(name, numbers),))
        self._own.setdefault(name, ())

    def note_edges(self, expand: ir.Expand, edges: int) -> None:
        """Note the number of edges between the candidates of two variables.

        One of them was narrowed to the nodes that the edges lead to. So the number of edges per pair of candidates is
        larger than on average, and the join order needs to know it.
        """
        side = side_at(expand, expand.left)
        if side is not None:
            self._edges = {**self._edges, (expand.left, expand.right, side): edges}

    @property
    def edge_shares(self) -> dict[tuple[str, str, Side], float]:
        """For each noted traversal, the fraction of the pairs of candidates that an edge joins."""
        return {
            (left, right, side): min(edges / max(self.size(left) * self.size(right), 1), 1.0)
            for (left, right, side), edges in self._edges.items()
        }

    def size(self, name: str) -> int:
        """Number of candidates of a variable. Evaluates its conditions if necessary."""
        if name not in self._own:
            return self.total(name)
        found = self._chosen.get(name) or self.of(name)
        return len(found[0]) if len(found) == 1 else sum(map(len, found))

    def masks(self, name: str) -> list[Mask | None]:
        """Candidates of a variable as masks by node number, one for each of its types.

        A mask is None if all nodes of the type are candidates.
        """
        if name not in self._own:
            return [None for _ in self.tables(name)]
        masks: list[Mask | None] = []
        for table, numbers in zip(self.tables(name), self.of(name), strict=True):
            mask = np.zeros(table.slots, bool)
            mask[numbers] = True
            masks.append(mask)
        return masks


def _cheapest_first(conditions: Sequence[Expression], table: EntityTable) -> list[Expression]:
    """Conditions in an order in which tests of numbers come before tests of texts.

    Only the tests of single values at the beginning are sorted, because other conditions can fail.
    """
    end = next((at for at, condition in enumerate(conditions) if not condition.is_value_test), len(conditions))
    tests = sorted(conditions[:end], key=lambda condition: table.is_wide(condition.columns[0][1]))
    return [*tests, *conditions[end:]]


def _tested_values(condition: Expression, table: EntityTable) -> DistinctValues | None:
    """The distinct values of the property that a condition tests; None if it cannot be evaluated on them."""
    if not condition.is_value_test:
        return None
    (_, name) = condition.columns[0]
    return distinct_values(table, name) if table.has_column(name) else None


def _where(numbers: Numbers, mask: pa.BooleanArray) -> Numbers:
    """The entities for which a mask is true."""
    if mask.true_count * SPARSE_RATIO < len(mask):
        found: Numbers = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
        return numbers.take(found)
    marked: Mask = mask.to_numpy(zero_copy_only=False)
    places = np.flatnonzero(marked)
    # Numbers ascend. If the last of n numbers is n - 1, they are 0 to n - 1. Then the positions are the numbers.
    return places if len(numbers) and int(numbers[-1]) == len(numbers) - 1 else numbers.take(places)
