"""Counting without listing: how many rows a match has, from how many neighbours each node has.

A match whose variables hang together like a tree is walked from its leaves to one variable. What arrives there is, for
each node, in how many rows it stands.
"""

from __future__ import annotations

import numpy as np

from omnigraph.errors import ExecutionError
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.candidates import Candidates
from omnigraph.read.context import Context
from omnigraph.read.expand import adjacencies, reversed_steps
from omnigraph.read.frame import Binding, Frame, variables
from omnigraph.read.space import Numbers
from omnigraph.read.topology import Adjacency

_LARGEST = float(2**62)


def counted(block: ir.Block, root: str, candidates: Candidates, context: Context) -> tuple[Frame, Numbers]:
    """Rows that stand for several, and for how many each stands.

    Args:
        block: a match that can be counted.
        root: the variable to count by.
        candidates: what each variable may hold.
        context: the read.
    """
    tree = _Tree(block, candidates, context)
    numbers = candidates.of(root)[0]
    weights = tree.weights(root)[numbers]
    while tree.left:
        weights = _times(weights, tree.weights(tree.left[0]).sum(keepdims=True))
    there = weights > 0
    return Frame(int(there.sum()), {root: Binding(candidates.spaces(root), numbers[there])}), weights[there]


def can_be_counted(read: ir.Read, context: Context) -> tuple[str, Candidates] | None:
    """The variable to count by, and what each variable may hold; None where a read has to list its rows.

    What can be counted is a read that counts rows, by properties of one variable at most.
    """
    root = _root(read)
    if root is None:
        return None
    block = read.match
    candidates = Candidates({node.name: node for node in block.nodes}, block.filters, context)
    return None if candidates.others else (root, candidates)


def _root(read: ir.Read) -> str | None:
    """The variable to count by, when a read can be counted."""
    block = read.match
    names = {node.name for node in block.nodes}
    simple = (
        read.grouped
        and not (block.optionals or block.negations or block.outer)
        and names
        and all(len(node.types) == 1 for node in block.nodes)
        and all(_is_plain(expand) for expand in block.expands)
        and _is_forest(block, names)
    )
    if not simple:
        return None
    aggregates = [part for part in walk((read.columns, read.having)) if isinstance(part, ir.Aggregate)]
    if not all(_counts_rows(aggregate, names) for aggregate in aggregates):
        return None
    by = frozenset(name for column in read.keys for name in variables(column.expr))
    if len(by) > 1 or not by <= names:
        return None
    return next(iter(by), min(names))


def _is_plain(expand: ir.Expand) -> bool:
    (step, *others) = expand.steps
    return (
        not others
        and expand.edge_var is None
        and expand.hops is None
        and expand.path_var is None
        and step.direction is not ir.Direction.BOTH
    )


def _is_forest(block: ir.Block, names: set[str]) -> bool:
    """Whether no variable can be reached in two ways."""
    home = {name: name for name in names}

    def top(name: str) -> str:
        while home[name] != name:
            name = home[name]
        return name

    for expand in block.expands:
        left, right = top(expand.left), top(expand.right)
        if left == right:
            return False
        home[left] = right
    return True


def _counts_rows(aggregate: ir.Aggregate, names: set[str]) -> bool:
    """Whether an aggregate is the number of rows."""
    if aggregate.function is not ir.AggregateFunction.COUNT or aggregate.distinct:
        return False
    arg = aggregate.arg
    return arg is None or (isinstance(arg, ir.Ident) and arg.var in names and not arg.nullable)


class _Tree:
    """The variables of a match, walked from leaves to roots."""

    def __init__(self, block: ir.Block, candidates: Candidates, context: Context) -> None:
        self._candidates = candidates
        self._context = context
        self._expands = list(block.expands)
        self.left = [node.name for node in block.nodes]
        """Variables that have not been counted yet."""

    def weights(self, name: str) -> Numbers:
        """For each node that a variable may hold, in how many rows of its part of the match it stands."""
        self.left.remove(name)
        space = self._candidates.spaces(name)[0]
        found = np.zeros(space.slots, np.int64)
        found[self._candidates.of(name)[0]] = 1
        for expand in [e for e in self._expands if name in (e.left, e.right)]:
            self._expands.remove(expand)
            forward = expand.left == name
            child = expand.right if forward else expand.left
            steps = expand.steps if forward else reversed_steps(expand.steps)
            (adjacency,) = adjacencies(self._context, steps[0])
            found = _times(found, self._arriving(adjacency.distinct, child))
        return found

    def _arriving(self, adjacency: Adjacency, child: str) -> Numbers:
        """For each node, the rows of all its neighbours together."""
        leaf = not any(child in (e.left, e.right) for e in self._expands)
        if leaf and self._candidates.masks(child)[0] is None:
            self.left.remove(child)
            return adjacency.degree
        weights = self.weights(child)
        self._context.budget.spend(len(adjacency.neighbour))
        sums: Numbers = np.concatenate([[0], np.cumsum(weights.take(adjacency.neighbour))])
        return sums[adjacency.first[1:]] - sums[adjacency.first[:-1]]


def _times(left: Numbers, right: Numbers) -> Numbers:
    if len(left) and float(left.max()) * float(right.max()) * len(left) > _LARGEST:
        raise ExecutionError("a count is too large for I64")
    return left * right
