"""The public names: all of them come from `omnigraph`, importing it is cheap, and options match their requests."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_type_hints

import pytest

import omnigraph
from omnigraph.engine import request_options, requests
from omnigraph.errors import OmnigraphError

NAMES = {
    **{name: getattr(omnigraph, name) for name in omnigraph.__all__},
    **{name: getattr(requests, name) for name in ("At", "ListedRead", "MappingSource", "QueryText", "Target")},
}
"""Types that annotations name. A module imports most of them for type checkers only."""

ROOT = Path(__file__).resolve().parents[2]

OPTIONS = {
    request_options.QueryOptions: (requests.QueryRequest, {"text", "params", "branch", "at"}),
    request_options.ExplainOptions: (requests.ExplainRequest, {"text", "params", "branch", "at"}),
    request_options.MutateOptions: (requests.MutateRequest, {"text", "params", "branch"}),
    request_options.WriteOptions: (requests.TransactionRequest, {"branch"}),
    request_options.LoadOptions: (requests.LoadRequest, {"branch"}),
    request_options.MergeOptions: (requests.MergeRequest, {"source", "into", "expect_source"}),
    request_options.PickOptions: (requests.RevertRequest, {"commit", "branch", "member"}),
    request_options.RestoreOptions: (requests.RestoreRequest, {"type_name", "ids", "at", "branch"}),
    request_options.EmbedOptions: (requests.EmbedRequest, {"branch"}),
    request_options.ExportOptions: (requests.ExportRequest, {"target", "format", "branch", "at"}),
    request_options.OptimizeOptions: (requests.OptimizeRequest, set()),
    request_options.DiffOptions: (requests.DiffRequest, {"before", "after"}),
    request_options.CommitChangesOptions: (requests.CommitChangesRequest, {"commit"}),
    request_options.PollOptions: (requests.PollRequest, {"branch"}),
    request_options.FollowOptions: (requests.PollRequest, {"branch", "wait"}),
    request_options.ChangeOptions: (requests.BaselineRequest, {"branch"}),
    request_options.HistoryOptions: (requests.LogRequest, {"type_name", "entity_id"}),
}
"""The options of each verb, its request, and the request fields that are separate arguments."""


def test_every_public_name_can_be_imported() -> None:
    for name in omnigraph.__all__:
        assert getattr(omnigraph, name) is not None
    assert set(omnigraph.__all__) == set(dir(omnigraph))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = omnigraph.nothing


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(inspect.getsource(omnigraph))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (alias.asname or alias.name) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(omnigraph.__all__) - {"__version__"}


def test_every_error_is_public() -> None:
    def family(kind: type[OmnigraphError]) -> set[type[OmnigraphError]]:
        return {kind}.union(*(family(sub) for sub in kind.__subclasses__()))

    public = {kind for kind in family(OmnigraphError) if kind.__module__.startswith("omnigraph.errors")}
    assert {kind.__name__ for kind in public if not kind.__name__.startswith("_")} <= set(omnigraph.__all__)


def test_importing_is_light() -> None:
    code = "import sys, omnigraph; print([m for m in sys.modules if m.split('.')[0] in ('lance', 'pyarrow', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


READ = """
import sys, omnigraph
with omnigraph.open(sys.argv[1]) as graph:
    text = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name as name } }"
    found = graph.query(text, {"n": "Ada"})
    assert list(found) == [{"name": "Ada"}], list(found)
print(*sys.modules)
"""


def test_a_read_imports_only_what_reads_need(tmp_path: Path) -> None:
    """A process that opens a graph and asks one question loads no module of another verb, no asyncio and no pandas."""
    with omnigraph.init(tmp_path / "g", "node Person { name: String @key }") as graph:
        graph.mutate('query add() { insert Person { name: "Ada" } }')
    command = [sys.executable, "-c", READ, str(tmp_path / "g")]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    outside = {"pandas", "asyncio", "pyspark", "yaml", "click", "rich", "networkx", "polars"}
    assert outside.isdisjoint(loaded)
    others = ("changes", "history", "merge", "upkeep", "pipeline", "cli", "write.load", "write.input", "write.mutation")
    assert [name for name in loaded if name.startswith(tuple(f"omnigraph.{other}" for other in others))] == []
    assert len([name for name in loaded if name.startswith("omnigraph")]) < 350


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_options_are_the_fields_of_their_request(options: type) -> None:
    request, own = OPTIONS[options]
    fields = {field.name for field in dataclasses.fields(request)}
    assert set(options.__annotations__) == fields - own
    hints, declared = get_type_hints(options, localns=NAMES), get_type_hints(request, localns=NAMES)
    assert {name: hints[name] for name in hints} == {name: declared[name] for name in hints}


def test_the_documentation_imports_only_from_omnigraph() -> None:
    for page in [
        ROOT / "README.md",
        *(ROOT / "docs" / "guide").glob("*.md"),
        *(ROOT / "docs" / "reference").glob("*.md"),
    ]:
        found = re.findall(r"(?:from|import) omnigraph\.[\w.]+", page.read_text(encoding="utf-8"))
        assert found == [], page


def options_of(method: Callable[..., object]) -> type | None:
    """The options of a method with `**options: Unpack[…]`."""
    named = re.fullmatch(r"Unpack\[(\w+)\]", method.__annotations__.get("options", ""))
    return getattr(request_options, named[1]) if named else None


METHODS = [
    (handle, name, request)
    for handle in (omnigraph.Graph, omnigraph.BranchHandle, omnigraph.Transaction)
    for name, request in (
        ("query", requests.QueryRequest),
        ("explain", requests.ExplainRequest),
        ("mutate", requests.MutateRequest),
        ("load", requests.LoadRequest),
        ("merge", requests.MergeRequest),
        ("revert", requests.RevertRequest),
        ("cherry_pick", requests.CherryPickRequest),
        ("restore", requests.RestoreRequest),
        ("embed", requests.EmbedRequest),
        ("export", requests.ExportRequest),
        ("optimize", requests.OptimizeRequest),
        ("diff", requests.DiffRequest),
    )
    if hasattr(handle, name)
]


@pytest.mark.parametrize(
    ("handle", "name", "request_type"), METHODS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_handle_rejects_request_fields_that_are_not_its_options(handle: type, name: str, request_type: type) -> None:
    """An accepted but ignored option would be worse than an error: `check=True` in a transaction writes no rows."""
    method = getattr(handle, name)
    options = options_of(method)
    allowed = set(inspect.signature(method).parameters) - {"options"}
    allowed |= set(options.__annotations__) if options else set()
    unknown = {field.name for field in dataclasses.fields(request_type)} - allowed | {"nonsense"}
    for field in sorted(unknown):
        given: dict[str, object] = {"mode": "append"} if name == "load" else {}
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{field}'"):
            method(object(), **given, **{field: None})


def test_a_missing_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"Graph.load\(\) missing a required keyword argument: 'mode'"):
        omnigraph.Graph.load(object(), [])  # type: ignore[call-arg, arg-type]
