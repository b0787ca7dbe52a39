"""Importing Lance without pandas.

If pandas is installed, pyarrow imports it the first time it converts a Python object, and Lance does so when it is
imported. That takes longer than opening a graph, and most processes never use pandas. So pyarrow finds no pandas while
Lance is imported, and learns of it as soon as anyone imports pandas.
"""

# See docs/decisions/0226-pandas-is-imported-by-those-who-use-it.md

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def hide_pandas_from_lance() -> None:
    """Let Lance be imported without pandas. Does nothing if the process has imported one of them before."""
    if "pandas" not in sys.modules and "pyarrow.dataset" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds pandas, and the module of pyarrow that imports it, with other loaders.

    Attributes:
        hidden_from: the thread that cannot import pandas at the moment.
    """

    hidden_from: int | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = _LOADERS.get(name)
        found = None if loader is None else PathFinder.find_spec(name, path, target)
        if loader is not None and found is not None and found.loader is not None:
            found.loader = loader(self, found.loader)
        return found


class _Loader(Loader):
    """A loader that loads with another one, and leaves no trace in the module."""

    def __init__(self, finder: _Finder, loader: Loader) -> None:
        self.finder = finder
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class _DatasetLoader(_Loader):
    """Loads `pyarrow.dataset`. Its thread finds no pandas meanwhile."""

    def exec_module(self, module: ModuleType) -> None:
        self.finder.hidden_from = threading.get_ident()
        try:
            super().exec_module(module)
        finally:
            self.finder.hidden_from = None


class _PandasLoader(_Loader):
    """Loads pandas. Afterwards pyarrow knows it."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self.finder.hidden_from == threading.get_ident():
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return super().create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        import pyarrow as pa

        _ = pa.lib._pandas_api.compat  # looks for pandas again


_LOADERS: dict[str, type[_Loader]] = {"pandas": _PandasLoader, "pyarrow.dataset": _DatasetLoader}
