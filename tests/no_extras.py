"""Hide the packages that a plain `pip install omnigraph` does not install. Use `pytest -p tests.no_extras`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

EXTRAS = frozenset(
    {
        *("cedarpy", "networkx", "pandas", "polars", "py4j", "pyspark", "rdflib"),
        *("fastapi", "httptools", "jwt", "opentelemetry", "prometheus_client", "starlette", "uvicorn", "uvloop"),
    }
)


class Without(MetaPathFinder):
    """Finds the modules of another finder, except the extras."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in EXTRAS:
            return None
        found: ModuleSpec | None = self._finder.find_spec(fullname, path, target)
        return found


def hide() -> None:
    """Hide the extras in this process until it ends."""
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    for name in [name for name in sys.modules if name.partition(".")[0] in EXTRAS]:
        del sys.modules[name]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Hide the extras here and not at import: pytest also imports this module to collect doctests."""
    hide()
