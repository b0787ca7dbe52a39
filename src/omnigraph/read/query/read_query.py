"""A compiled read query: the IR, and facts about its result that do not depend on data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.evaluate.rows import ROLE_COLUMNS
from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import Scalar
from omnigraph.read.query.block import QueryBlock
from omnigraph.read.query.expression import Expression, SortTerm, variables
from omnigraph.read.query.point_pattern import PointPattern, point_pattern

_INEXACT = frozenset({Scalar.F32, Scalar.F64, Scalar.VECTOR, Scalar.BLOB})
"""Types for which values that compare as equal may differ."""

_TEMPORAL = frozenset({Scalar.DATE, Scalar.DATETIME})


FoldableProperties = Mapping[str, Mapping[str, tuple[ir.AggregateFunction, ...]]]
"""For each variable, properties that are arguments of aggregates which can be folded, and the aggregates of each."""


@dataclass(frozen=True)
class ReadQuery:
    """A compiled read query, with facts that are derived from it. Create one object per query, because it caches them.

    A stage of a query is a read query, too. Its rows go on to the next stage instead of being returned.

    Attributes:
        read: the IR.
        carried: for a stage, the variables that go on; None for a whole query.

    Example:
        >>> from omnigraph.lang.query import compile_query
        >>> from omnigraph.lang.schema import compile_schema
        >>> catalog = compile_schema("node Person { name: String @key }")
        >>> text = "query q() { match { $p: Person } return { $p.name } }"
        >>> ReadQuery(compile_query(text, catalog, None).body).schema.names
        ['p.name']
    """

    read: ir.Read
    carried: tuple[str, ...] | None = None

    @property
    def is_stage(self) -> bool:
        return self.carried is not None

    @cached_property
    def stages(self) -> tuple[ReadQuery, ...]:
        """The stages before the match, in order."""
        return tuple(ReadQuery(stage.read, stage.carried) for stage in self.read.stages)

    @cached_property
    def passed_on(self) -> frozenset[str]:
        """For a stage, the variables and values that go on. The columns of a stage have their names."""
        return frozenset(column.name for column in self.read.columns)

    @cached_property
    def match(self) -> QueryBlock:
        """The `match` block."""
        return QueryBlock.of(self.read.match)

    @cached_property
    def point(self) -> PointPattern | None:
        """The pattern of a lookup of one node; None if the query has another form."""
        return point_pattern(self.read)

    # Result

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the result."""
        columns = self.read.columns
        return pa.schema([pa.field(c.name, arrow_type(c.expr.type), c.expr.type.nullable) for c in columns])

    @cached_property
    def columns(self) -> dict[str, Expression]:
        """Result columns by name, in order."""
        return {column.name: Expression(column.expr) for column in self.read.columns}

    @cached_property
    def keys(self) -> tuple[ir.OutColumn, ...]:
        """Grouping keys."""
        return self.read.keys

    @cached_property
    def aggregates(self) -> tuple[ir.Aggregate, ...]:
        """The aggregates in columns and in `having`, each once."""
        parts = walk((self.read.columns, self.read.having))
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, ir.Aggregate)))

    @cached_property
    def order(self) -> tuple[SortTerm, ...]:
        """The sort keys of the query.

        If a key refers to a result column that is just a property or id, the property or id is used instead.
        """
        found = []
        for key in self.read.order:
            expr = self.resolved(key.expr)
            plain = isinstance(expr, ir.Prop | ir.Ident)
            found.append(SortTerm(Expression(expr if plain else key.expr), key.descending, key.nulls_first))
        return tuple(found)

    @cached_property
    def ordering_columns(self) -> dict[str, Expression]:
        """Result columns that sort keys refer to, directly or through other columns."""
        named = named_columns([term.expression.expr for term in self.order], self.columns)
        return {name: column for name, column in self.columns.items() if name in named}

    @cached_property
    def ties(self) -> tuple[SortTerm, ...]:
        """Additional last sort keys, which make the order of the result unique."""
        return () if self.sorts_by_all_columns else tuple(SortTerm(Expression(tie)) for tie in self.read.ties)

    @cached_property
    def sorts_by_all_columns(self) -> bool:
        """Whether rows with equal sort keys are equal: every result column is a sort key, and there are no groups.

        Then the result depends only on how often each combination of values occurs in the match. Floats are left out,
        because equal floats can be different values (0.0 and -0.0).
        """
        if self.read.grouped or self.read.distinct or self.ranks or self.read.ranked is not None:
            return False
        keys = {self.resolved(key.expr) for key in self.read.order}
        return all(
            self.resolved(column.expr) in keys
            and not isinstance(column.expr, ir.Entity)
            and not column.expr.type.list
            and column.expr.type.scalar not in _INEXACT
            for column in self.read.columns
        )

    def resolved(self, expr: ir.Expr) -> ir.Expr:
        """If an expression refers to a result column, the expression of that column; else the expression itself."""
        while isinstance(expr, ir.Column):
            expr = self.columns[expr.name].expr
        return expr

    @cached_property
    def leading_key(self) -> ir.SortKey | None:
        """The first sort key, if it is a property or id of one node variable of the match; else None.

        Also None if rows cannot be matched in key order: for queries with groups, ranks or paths.
        """
        read = self.read
        if read.grouped or read.ranked is not None:
            return None
        if read.order:
            key = replace(read.order[0], expr=self.resolved(read.order[0].expr))
        elif read.ties:
            key = ir.SortKey(self.resolved(read.ties[0]))
        else:
            return None
        if not isinstance(key.expr, ir.Prop | ir.Ident) or key.expr.var not in self.match.nodes:
            return None
        # Rows with paths or fused ranks cannot be computed in batches.
        whole = any(
            isinstance(part, ir.Fusion) or (isinstance(part, ir.Expand) and part.path_var) for part in walk(read)
        )
        return None if whole else key

    # Ranks

    @cached_property
    def ranks(self) -> tuple[ir.Rank, ...]:
        """Rank expressions (vector distance, BM25, fusion) in columns and sort keys."""
        parts = walk((self.read.columns, self.read.order))
        return tuple(part for part in parts if isinstance(part, ir.Nearest | ir.Bm25 | ir.Fusion))

    @cached_property
    def first_rank(self) -> ir.Rank | None:
        """The rank that is the first sort key.

        None if the first key is not a rank, or if its order is not the best first and nulls last.
        """
        if not self.read.order:
            return None
        key = self.read.order[0]
        expr = self.resolved(key.expr)
        if not isinstance(expr, ir.Nearest | ir.Bm25 | ir.Fusion) or key.nulls_first:
            return None
        return expr if key.descending is not isinstance(expr, ir.Nearest) else None

    @cached_property
    def leading_rank(self) -> ir.Rank | None:
        """`first_rank`, if it ranks a node variable of the `match` block with one node type; else None."""
        rank = None if self.read.grouped or self.read.distinct else self.first_rank
        if rank is None:
            return None
        node = self.match.nodes.get(ranked_variable(rank))
        if node is None or len(node.types) != 1:
            return None
        # The scores of a fusion depend on all nodes of its variable that are in any row. `Rank` finds these nodes for
        # one variable only.
        others = any(isinstance(part, ir.Fusion) and ranked_variable(part) != node.name for part in self.ranks)
        return None if others else rank

    @cached_property
    def has_fusion(self) -> bool:
        """Whether columns or sort keys contain a fusion. Its scores depend on all rows of the match."""
        return any(isinstance(part, ir.Fusion) for part in self.ranks)

    @cached_property
    def unseen_fusion(self) -> ir.Fusion | None:
        """The fusion that orders the rows, if its scores are in no column and no other sort key; else None."""
        fusion = self.read.ranked
        seen = walk((self.read.columns, self.read.order[1:]))
        return fusion if isinstance(fusion, ir.Fusion) and fusion not in seen else None

    # Grouping

    @cached_property
    def _grouped_parts(self) -> tuple[object, ...]:
        return (self.read.columns, self.read.having, self.read.order)

    @cached_property
    def is_countable(self) -> bool:
        """Whether all aggregates can be computed from distinct rows and the number of times that each row occurs."""
        parts = walk(self._grouped_parts)
        return all(_accepts_weights(part) for part in parts if isinstance(part, ir.Aggregate))

    @cached_property
    def result_variables(self) -> frozenset[str]:
        """Variables whose values the result needs.

        If `is_countable`, arguments of aggregates that only count rows are left out.
        """
        if self.is_countable:
            return frozenset(_needed_variables(self._grouped_parts))
        return frozenset(name for part in self._grouped_parts for name in variables(part))

    @cached_property
    def foldable_properties(self) -> FoldableProperties:
        """Variables that only occur as arguments of aggregates which can be folded (see `omnigraph.read.match.fold`).

        They are variables of the match or of its optional blocks. Empty if not `is_countable`.
        """
        if not self.is_countable:
            return {}
        folded = [each for each in self.aggregates if _can_fold(each)]
        others = _needed_variables(self._grouped_parts, frozenset(folded))
        kept = frozenset(others)
        found: dict[str, dict[str, tuple[ir.AggregateFunction, ...]]] = {}
        nodes = self.match.nodes.keys() | {name for inner in self.match.optionals for name in inner.nodes}
        for each in folded:
            assert isinstance(each.arg, ir.Prop | ir.Ident)
            if each.arg.var not in kept and each.arg.var in nodes:
                functions = found.setdefault(each.arg.var, {})
                name = each.arg.name if isinstance(each.arg, ir.Prop) else ROLE_COLUMNS[each.arg.role]
                functions[name] = (*functions.get(name, ()), each.function)
        return found

    @cached_property
    def shape_variables(self) -> frozenset[str]:
        """Variables whose bindings the operators after the match use, if rows have no weights (see `Count`)."""
        ties = tuple(term.expression.expr for term in self.ties)
        return variables((self.read.columns, self.read.having, self.read.order, ties, self.read.ranked))

    @cached_property
    def ignores_duplicates(self) -> bool:
        """Whether the result stays the same if duplicate rows of the match are removed."""
        if self.ranks or any(isinstance(part, ir.Expand) and part.path_var for part in walk(self.read)):
            return False
        if not self.read.grouped:
            return self.read.distinct
        function = ir.AggregateFunction
        return all(each.distinct or each.function in (function.MIN, function.MAX) for each in self.aggregates)

    @cached_property
    def counts_matches(self) -> bool:
        """Whether matches of some variables can be counted: the result is grouped, and its aggregates allow it."""
        return self.read.grouped and self.is_countable


def named_columns(exprs: Sequence[ir.Expr], columns: Mapping[str, Expression]) -> set[str]:
    """Names of the result columns that expressions refer to, directly or through other columns."""
    found: set[str] = set()
    todo: list[object] = list(exprs)
    while todo:
        for part in walk(todo.pop()):
            if isinstance(part, ir.Column) and part.name not in found:
                found.add(part.name)
                todo.append(columns[part.name].expr)
    return found


def ranked_variable(rank: ir.Rank) -> str:
    """The variable whose nodes a rank scores."""
    return (rank.arms[0].rank if isinstance(rank, ir.Fusion) else rank).field.var


def _accepts_weights(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate can be computed from rows with weights.

    It ignores duplicates, it counts, or it adds up integers. Sums of floats depend on how often a number is added.
    """
    function = ir.AggregateFunction
    if aggregate.distinct or aggregate.function in (function.COUNT, function.MIN, function.MAX):
        return True
    scalar = None if aggregate.arg is None or aggregate.arg.type.list else aggregate.arg.type.scalar
    return aggregate.function in (function.SUM, function.AVG) and scalar is not None and scalar.is_integer


def _can_fold(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate of a property can be computed from the counts, sums and ends of parts of the rows."""
    arg, function = aggregate.arg, ir.AggregateFunction
    if isinstance(arg, ir.Ident):
        return arg.role is ir.Role.ID and aggregate.function is function.COUNT and not aggregate.distinct
    if not isinstance(arg, ir.Prop) or arg.type.list:
        return False
    if aggregate.function in (function.MIN, function.MAX):
        return arg.type.scalar.is_integer or arg.type.scalar in _TEMPORAL
    if aggregate.distinct:
        return False
    if aggregate.function is function.COUNT:
        return True
    return aggregate.function in (function.SUM, function.AVG) and arg.type.scalar.is_integer


def _needed_variables(part: object, without: frozenset[ir.Aggregate] = frozenset()) -> Iterator[str]:
    """Variables of expressions, except those that only occur in aggregates of rows or in the aggregates `without`."""
    if isinstance(part, ir.Aggregate) and (part in without or _counts_rows(part)):
        return
    if isinstance(part, tuple):
        for inner in part:
            yield from _needed_variables(inner, without)
    elif any(isinstance(inner, ir.Aggregate) for inner in walk(part)):
        assert is_dataclass(part)
        for field in fields(part):
            yield from _needed_variables(getattr(part, field.name), without)
    else:
        yield from variables(part)


def _counts_rows(aggregate: ir.Aggregate) -> bool:
    """Whether an aggregate is the number of rows: `count(*)`, or `count` of an entity or id that is never null."""
    if aggregate.function is not ir.AggregateFunction.COUNT or aggregate.distinct:
        return False
    arg = aggregate.arg
    return arg is None or (isinstance(arg, ir.Ident | ir.Entity) and not arg.nullable)
