"""Random questions to this database."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import omnigraph
from asking.draw import Extensions
from asking.gq import STAGES, SUBQUERIES
from asking.graphs import GRAPHS, MEMORY, Graph
from asking.serve import StoppedError, main
from omnigraph.errors import BudgetExceededError, OmnigraphError
from omnigraph.lang.query import compile_query
from omnigraph.lang.schema import compile_schema
from omnigraph.read.budget import Budget
from study.ours import table

NODE = "node {name} {{ num: I64 @key  rank: I64  score: I64  kind: String  mark: I64? }}\n"


def schema(graph: Graph) -> str:
    nodes = "".join(NODE.format(name=name) for name in graph.nodes)
    return nodes + "".join(f"edge {edge.name}: {edge.source} -> {edge.target}\n" for edge in graph.edges)


def store(files: Path, place: Path, graph: Graph) -> None:
    with omnigraph.init(place, schema(graph)) as made:
        made.load({file.stem: table(file) for file in sorted(files.iterdir())}, mode="append")
        made.ensure_indexes()


def extensions() -> Extensions:
    """What the language has beyond a match and a return."""
    return Extensions(stages=_compiles(STAGES), subqueries=_compiles(SUBQUERIES))


def _compiles(text: str) -> bool:
    try:
        compile_query(text, compile_schema(schema(GRAPHS["social"])))
    except OmnigraphError:
        return False
    return True


class Ours:
    """This engine, with a graph open."""

    def __init__(self, place: Path) -> None:
        self._graph = omnigraph.open(place, read_only=True)

    def ask(self, text: str, seconds: float) -> pa.Table:
        # The limit of examined rows is for shared servers; the limit of time replaces it.
        try:
            return self._graph.query(text, budget=Budget(seconds=seconds, memory=MEMORY, rows=None)).to_arrow()
        except BudgetExceededError as error:
            raise StoppedError(str(error)) from error

    def explain(self, text: str) -> str:
        try:
            return str(self._graph.explain(text, analyze=True, budget=Budget(memory=MEMORY, rows=None)))
        except BudgetExceededError as error:
            return f"{error}\n{self._graph.explain(text)}"


if __name__ == "__main__":
    main(store, Ours)
