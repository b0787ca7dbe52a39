"""A process that opens a graph and looks up a node loads few modules, so that its first answer comes soon."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.patience import PATIENCE

import omnigraph

LOOKUP = "query age($n: String) { match { $p: Person { name: $n } } return { $p.age as age } }"
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Follows: Person -> Person"

PROGRAM = """
import json, sys
import omnigraph
with omnigraph.open(sys.argv[1]) as graph:
    rows = graph.query(sys.argv[2], {"n": "Ada"}).to_pylist()
print(json.dumps([rows, sorted(sys.modules)]))
"""

LIBRARIES = """
import json, sys
import omnigraph.storage, pyarrow, lance, numpy
print(json.dumps(sorted(sys.modules)))
"""

MOST_OURS = 210
"""The number of modules of the package that the lookup loads, and a few more. Each takes about 0.2 ms."""

OTHERS = {
    *("_blake2", "_hashlib", "_queue", "concurrent", "fcntl", "hashlib", "hmac", "mmap", "queue", "secrets"),
    *("numpy", "orjson", "re2", "ulid_transform"),
}
"""The packages of other libraries that it loads in addition to those that pyarrow, Lance and numpy load."""

UNUSED = (
    *("changes", "cli", "embed", "history", "merge", "migrate", "pipeline", "upkeep", "write"),
    *("commit.branches", "commit.recovery", "evaluate.expression", "graph.collections", "lang.query.printer"),
    *("read.execute.executor", "read.plan", "read.rows", "read.search", "read.shape", "read.topology"),
)


def output(program: str, *arguments: str) -> list[object]:
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    found: list[object] = json.loads(run.stdout)
    return found


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    address = tmp_path_factory.mktemp("few") / "graph"
    with omnigraph.init(address, SCHEMA) as graph:
        graph.mutate('query add() { insert Person { name: "Ada", age: 36 } }')
    rows, modules = output(PROGRAM, str(address), LOOKUP)
    assert rows == [{"age": 36}]
    assert isinstance(modules, list)
    return set(modules)


def test_a_lookup_loads_few_modules(loaded: set[str]) -> None:
    assert len([name for name in loaded if name.partition(".")[0] == "omnigraph"]) <= MOST_OURS


def test_a_lookup_loads_no_planner_and_nothing_that_writes(loaded: set[str]) -> None:
    unused = tuple(f"omnigraph.{name}" for name in UNUSED)
    assert [name for name in sorted(loaded) if name in unused or name.startswith(tuple(f"{u}." for u in unused))] == []


def test_a_lookup_loads_few_other_libraries(loaded: set[str]) -> None:
    known = {str(name) for name in output(LIBRARIES)}
    assert {name.partition(".")[0] for name in loaded - known} - {"omnigraph", "pyarrow", "lance"} <= OTHERS
    assert "numpy.ma" not in loaded
    assert "pandas" not in loaded


def test_opening_flushes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "1")
    flushed: list[object] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    omnigraph.init(tmp_path / "graph", SCHEMA).close()
    assert flushed
    flushed.clear()
    omnigraph.open(tmp_path / "graph").close()
    assert flushed == []


@pytest.mark.parametrize("collects", [True, False])
def test_imports_leave_the_garbage_collector_as_it_was(collects: bool) -> None:
    program = f"import gc, omnigraph\ngc.{'enable' if collects else 'disable'}()\nomnigraph.open\nprint(gc.isenabled())"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(collects)


def test_a_failed_import_leaves_the_garbage_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omnigraph.write.load", None)
    monkeypatch.delitem(vars(omnigraph), "LoadPhase", raising=False)
    with pytest.raises(ImportError):
        _ = omnigraph.LoadPhase
    assert gc.isenabled()


@pytest.mark.parametrize("package", ["embed", "evaluate", "lang.query", "lang.schema"])
def test_packages_have_all_their_names(package: str) -> None:
    """In a new process, where no other module has imported them before."""
    program = (
        "import importlib\n"
        f"package = importlib.import_module('omnigraph.{package}')\n"
        "found = {name: getattr(package, name) for name in package.__all__}\n"
        "print([name for name, value in found.items() if type(value).__name__ == 'module'])\n"
        "try:\n    package.no_such_name\nexcept AttributeError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", f"module 'omnigraph.{package}' has no attribute 'no_such_name'"]


def test_no_lazy_name_is_the_name_of_a_module() -> None:
    """Importing the module would replace the name."""
    package = Path(omnigraph.__file__).parent
    for name in ("embed", "evaluate", "lang/query", "lang/schema"):
        text = (package / name / "__init__.py").read_text("utf-8")
        lazy = text.partition("lazy_names(")[2].partition("__all__")[0]
        modules = {path.stem for path in (package / name).iterdir()}
        assert not [module for module in modules if f'"{module}"' in lazy.replace(f'"{module}": (', "")], name


def test_threads_that_import_at_once_leave_garbage_collection_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second thread asks while it is off. Without care, it is turned off again after the first has turned it on."""
    asked, ended = threading.Event(), threading.Event()

    def imported(name: str) -> None:
        if name == "omnigraph.first":
            second.start()
            asked.wait(1)

    class Collector:
        """The module `gc`, whose second user is slow between its question and its next call."""

        enable = staticmethod(gc.enable)

        @staticmethod
        def isenabled() -> bool:
            if threading.current_thread() is second:
                asked.set()
            return gc.isenabled()

        @staticmethod
        def disable() -> None:
            if threading.current_thread() is second:
                ended.wait(PATIENCE)
            gc.disable()

    second = threading.Thread(target=omnigraph._load, args=("second",))
    monkeypatch.setattr(omnigraph, "import_module", imported)
    monkeypatch.setattr(omnigraph, "gc", Collector)
    try:
        omnigraph._load("first")
        ended.set()
        second.join()
        assert gc.isenabled()
    finally:
        gc.enable()
