"""Count the modules and functions that a call passes on its way: `python scripts/walk.py query|mutate|merge|load`.

A module is re-entered if it is called while an earlier call of it has not returned, by another module. Control then
goes back and forth between modules, which makes a walk hard to follow.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import omnigraph

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person { since: I64? }"
QUERY = (
    "query friends($name: String) { match { $a: Person { name: $name }  $a knows $b } "
    "return { $b.name, $b.age } order { $b.name } }"
)
ADD = "query add($n: String) { insert Person { name: $n, age: 3 } }"
PERSONS = 200
VERBS = ("query", "mutate", "merge", "load")

_SOURCE = f"{Path(omnigraph.__file__).parent}{os.sep}"


@dataclass(slots=True)
class Walk:
    """The way of a call.

    Attributes:
        modules: the modules, in the order of their first call.
        functions: the functions.
        reentered: pairs of a module that was re-entered and the module that called it.
    """

    modules: dict[str, None] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    reentered: set[tuple[str, str]] = field(default_factory=set)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call. To be set as the profiler."""
        code = frame.f_code
        module = _module(frame)
        if event != "call" or module is None or code.co_name.startswith(("<", "__")):
            return
        self.modules[module] = None
        self.functions.add(f"{module}:{code.co_qualname}")
        callers = _callers(frame)
        if callers and callers[0] != module and module in callers:
            self.reentered.add((module, callers[0]))


def _module(frame: FrameType) -> str | None:
    """The module of a frame; None outside of the package."""
    name = frame.f_code.co_filename
    return name[len(_SOURCE) : -len(".py")] if name.startswith(_SOURCE) else None


def _callers(frame: FrameType) -> list[str]:
    """The modules on the stack, without repetitions in a row. The nearest comes first."""
    found: list[str] = []
    above = frame.f_back
    while above is not None:
        module = _module(above)
        if module is not None and (not found or found[-1] != module):
            found.append(module)
        above = above.f_back
    return found


def walk(verb: str, directory: str) -> Walk:
    """Trace one call of a verb on a new graph of 200 persons."""
    with omnigraph.init(f"{directory}/graph", SCHEMA) as graph:
        persons = [{"name": f"p{i}", "age": i % 90} for i in range(PERSONS)]
        knows = [{"from": f"p{i}", "to": f"p{(i + 1) % PERSONS}", "since": i} for i in range(PERSONS)]
        graph.load({"Person": pa.Table.from_pylist(persons), "Knows": pa.Table.from_pylist(knows)}, mode="append")
        call = _call(graph, verb)
        found = Walk()
        sys.setprofile(found.note)
        try:
            call()
        finally:
            sys.setprofile(None)
    return found


def _call(graph: omnigraph.Graph, verb: str) -> Callable[[], object]:
    match verb:
        case "query":
            return lambda: graph.query(QUERY, {"name": "p3"})
        case "mutate":
            return lambda: graph.mutate(ADD, {"n": "new"})
        case "merge":
            graph.branches.create("dev")
            graph.branch("dev").mutate(ADD, {"n": "on dev"})
            graph.mutate(ADD, {"n": "on main"})
            return lambda: graph.merge("dev")
        case "load":
            graph.pipeline.load({"Person": pa.table({"name": ["first"], "age": [1]})}, mode="append")  # starts Spark
            rows = pa.table({"name": [f"x{i}" for i in range(50)], "age": [1] * 50})
            return lambda: graph.pipeline.load({"Person": rows}, mode="append")
    raise SystemExit(f"there is no walk '{verb}': choose one of {', '.join(VERBS)}")


if __name__ == "__main__":
    for name in sys.argv[1:] or VERBS:
        with tempfile.TemporaryDirectory() as directory:
            way = walk(name, directory)
        print(f"{name}: {len(way.modules)} modules, {len(way.functions)} functions, {len(way.reentered)} re-entered")
        for module, caller in sorted(way.reentered):
            print(f"  {module} is re-entered from {caller}")
