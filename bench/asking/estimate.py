"""How many rows a question goes through, so that questions which no engine can answer are not asked.

Exact for a pattern without cycles and for conditions on single variables. The other conditions and the edges that close
a cycle are left out, and leave fewer rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow.parquet as pq

from asking.graphs import Numbers
from asking.question import Block, Compare, Condition, Different, Either, Exists, IsNull, OneOf, Property, Question

Weights: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"

OPERATORS = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


class Estimates:
    """The columns and edges of a graph, from its files."""

    def __init__(self, files: Path) -> None:
        self._columns: dict[str, dict[str, np.ndarray[tuple[int], np.dtype[np.generic]]]] = {}
        self._nulls: dict[str, Mask] = {}
        self._ends: dict[str, tuple[Numbers, Numbers]] = {}
        for file in sorted(files.iterdir()):
            table = pq.read_table(file)
            if "from" in table.column_names:
                self._ends[file.stem] = (table["from"].to_numpy(), table["to"].to_numpy())
            else:
                self._nulls[file.stem] = table["mark"].is_null().to_numpy()
                filled = table.set_column(table.column_names.index("mark"), "mark", table["mark"].fill_null(-1))
                self._columns[file.stem] = {
                    name: filled[name].to_numpy().astype("U") if name == "kind" else filled[name].to_numpy()
                    for name in filled.column_names
                }

    def rows(self, question: Question) -> float:
        types = dict(question.match.types)
        weights = {var: self._kept(var, kind, question.match) for var, kind in types.items()}
        if question.optional is not None:
            start = self._start(question.optional)
            weights[start] *= np.maximum(self._below(question.optional, start, types[start]), 1)
        found = self._tree(question.match, weights)
        if question.stage is not None:
            then = question.stage.then
            found = max(found, float(self._below(then, question.stage.kept, types[question.stage.kept]).sum()))
        return found

    def _start(self, block: Block) -> str:
        return next(var for edge in block.edges for var in edge.ends if var not in block.types)

    def _below(self, block: Block, start: str, kind: str) -> Weights:
        """For each node of the start, how many solutions a block has."""
        weights = {var: self._kept(var, other, block) for var, other in block.types.items()}
        weights[start] = np.ones(len(self._nulls[kind]))
        self._tree(block, weights, start)
        return weights[start]

    def _tree(self, block: Block, weights: dict[str, Weights], root: str | None = None) -> float:
        """Fold each variable into the one that it was reached from, the last first; at last there is one."""
        first = root or next(iter(weights))
        reached, tree = {first}, []
        left = list(block.edges)
        while left:
            edge = next(edge for edge in left if set(edge.ends) & reached)
            left.remove(edge)
            new = set(edge.ends) - reached
            if new:
                tree.append((edge, new.pop()))
                reached.add(tree[-1][1])
        for edge, var in reversed(tree):
            source, target = self._ends[edge.kind]
            outwards = var == edge.target
            near, here, there = (edge.source, source, target) if outwards else (edge.target, target, source)
            weights[near] *= np.bincount(here, weights[var][there], len(weights[near]))
        return float(weights[first].sum())

    def _kept(self, var: str, kind: str, block: Block) -> Weights:
        kept = np.ones(len(self._nulls[kind]))
        for condition in block.conditions:
            mask = self._mask(condition, var, kind)
            if mask is not None:
                kept *= mask
        return kept

    def _mask(self, condition: Condition, var: str, kind: str) -> Mask | None:
        """The nodes that satisfy a condition; None if it is on another variable, or on two."""
        columns, nulls = self._columns[kind], self._nulls[kind]
        match condition:
            case Compare(Property(of, name), op, right) if of == var and not isinstance(right, Property):
                found: Mask = OPERATORS[op](columns[name], right)
                return found & ~nulls if name == "mark" else found
            case OneOf(Property(of, name), values) if of == var:
                return np.isin(columns[name], values)
            case IsNull(Property(of, _), negated) if of == var:
                return ~nulls if negated else nulls
            case Either(one, other):
                both = self._mask(one, var, kind), self._mask(other, var, kind)
                return None if both[0] is None or both[1] is None else both[0] | both[1]
            case Different() | Compare() | OneOf() | IsNull() | Exists():
                return None
