"""The declared dependencies are the imported ones: no more and no fewer."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OWN = {path.stem for folder in ("bench", "examples/papers", "scripts", "src") for path in (ROOT / folder).iterdir()}


CHOSEN_BY_USERS = {"torch-geometric"}
"""Optional imports that no extra installs, because users choose the build that fits their hardware."""


def requirements() -> set[str]:
    """The requirements of `pip install omnigraph[all]`."""
    project = PYPROJECT["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    names: set[str] = {canonicalize_name(Requirement(line).name) for line in [*project["dependencies"], *extras]}
    return names - {project["name"]}


def groups() -> set[str]:
    """The additional requirements of developers and benchmarks."""
    lines = [line for group in PYPROJECT["dependency-groups"].values() for line in group]
    return {canonicalize_name(Requirement(line).name) for line in lines}


@cache
def imported(folder: str) -> dict[str, str]:
    """The distributions that the modules of a directory import, each with one of the modules."""
    found: dict[str, str] = {}
    for module in (ROOT / folder).rglob("*.py"):
        for name in _imports(ast.parse(module.read_text(encoding="utf-8"))):
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in OWN | {"tests", "_typeshed"}:
                found[_distribution(top)] = str(module.relative_to(ROOT))
    return found


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and re.search(r"(import_module|find_spec)$", ast.unparse(node.func)):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


@cache
def _installed() -> dict[str, list[str]]:
    return dict(packages_distributions())


def _distribution(package: str) -> str:
    if package == "opentelemetry":  # many distributions share this package; the SDK of the tests needs the API
        return "opentelemetry-api"
    return canonicalize_name(_installed().get(package, [package])[0])


def test_every_dependency_is_imported() -> None:
    assert requirements() - imported("src").keys() == set()


def test_every_import_of_the_package_is_declared() -> None:
    declared = requirements() | CHOSEN_BY_USERS
    assert {name: module for name, module in imported("src").items() if name not in declared} == {}


def test_every_import_of_tests_and_benchmarks_is_declared() -> None:
    declared = requirements() | groups() | CHOSEN_BY_USERS | {"werkzeug"}  # a dependency of flask
    for folder in ("tests", "bench", "scripts", "examples"):
        assert {name: module for name, module in imported(folder).items() if name not in declared} == {}
