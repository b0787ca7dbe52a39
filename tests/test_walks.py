"""Calls go in one direction: no module calls back into a module that is still at work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from walk import VERBS, Walk, walk


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=pytest.mark.spark if verb == "load" else ()) for verb in VERBS]
)
def test_no_module_is_reentered(verb: str, tmp_path: Path) -> None:
    found = walk(verb, str(tmp_path))
    assert f"engine/{verb}" in found.modules
    assert not found.reentered


def test_a_call_back_into_a_module_is_noticed() -> None:
    first: Any = _module("first", "def outer(call): call()\ndef inner(): pass")
    second: Any = _module("second", "def middle(call): call()")
    found = Walk()
    sys.setprofile(found.note)
    try:
        first["outer"](lambda: second["middle"](first["inner"]))
    finally:
        sys.setprofile(None)
    assert found.reentered == {("first", "second")}


def _module(name: str, text: str) -> dict[str, Any]:
    """The members of a module that pretends to be in the package."""
    members: dict[str, Any] = {}
    exec(compile(text, f"{Path(omnigraph.__file__).parent}/{name}.py", "exec"), members)
    return members
