"""The public names: all of them come from `omnigraph`, importing it is cheap, and options match their requests."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import omnigraph
from omnigraph.engine import requests
from omnigraph.errors import OmnigraphError

ROOT = Path(__file__).resolve().parents[2]

OPTIONS = {
    requests.QueryOptions: (requests.QueryRequest, {"text", "params", "branch", "at"}),
    requests.ExplainOptions: (requests.ExplainRequest, {"text", "params", "branch", "at"}),
    requests.MutateOptions: (requests.MutateRequest, {"text", "params", "branch"}),
    requests.WriteOptions: (requests.TransactionRequest, {"branch"}),
    requests.LoadOptions: (requests.LoadRequest, {"branch"}),
    requests.MergeOptions: (requests.MergeRequest, {"source", "into", "expect_source"}),
    requests.PickOptions: (requests.RevertRequest, {"commit", "branch", "member"}),
    requests.RestoreOptions: (requests.RestoreRequest, {"type_name", "ids", "at", "branch"}),
    requests.EmbedOptions: (requests.EmbedRequest, {"branch"}),
    requests.ExportOptions: (requests.ExportRequest, {"target", "format", "branch", "at"}),
    requests.OptimizeOptions: (requests.OptimizeRequest, set()),
    requests.DiffOptions: (requests.DiffRequest, {"before", "after"}),
    requests.CommitChangesOptions: (requests.CommitChangesRequest, {"commit"}),
    requests.PollOptions: (requests.PollRequest, {"branch"}),
    requests.FollowOptions: (requests.PollRequest, {"branch", "wait"}),
    requests.ChangeOptions: (requests.BaselineRequest, {"branch"}),
    requests.HistoryOptions: (requests.LogRequest, {"type_name", "entity_id"}),
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


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.__name__)
def test_options_are_the_fields_of_their_request(options: type) -> None:
    request, own = OPTIONS[options]
    fields = {field.name for field in dataclasses.fields(request)}
    assert set(options.__annotations__) == fields - own
    hints, declared = get_type_hints(options), get_type_hints(request)
    assert {name: hints[name] for name in hints} == {name: declared[name] for name in hints}


def test_the_documentation_imports_only_from_omnigraph() -> None:
    for page in [
        ROOT / "README.md",
        *(ROOT / "docs" / "guide").glob("*.md"),
        *(ROOT / "docs" / "reference").glob("*.md"),
    ]:
        found = re.findall(r"(?:from|import) omnigraph\.[\w.]+", page.read_text(encoding="utf-8"))
        assert found == [], page


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
    hints = get_type_hints(method, include_extras=True)
    options = get_args(hints["options"])[0] if "options" in hints else None
    allowed = set(inspect.signature(method).parameters) - {"options"}
    allowed |= set(get_type_hints(options)) if options else set()
    unknown = {field.name for field in dataclasses.fields(request_type)} - allowed | {"nonsense"}
    for field in sorted(unknown):
        given: dict[str, object] = {"mode": "append"} if name == "load" else {}
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{field}'"):
            method(object(), **given, **{field: None})


def test_a_missing_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"Graph.load\(\) missing a required keyword argument: 'mode'"):
        omnigraph.Graph.load(object(), [])  # type: ignore[call-arg, arg-type]
