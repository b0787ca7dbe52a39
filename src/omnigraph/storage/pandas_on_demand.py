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


def import_lance_without_pandas() -> None:
    """Import what Lance needs of pyarrow. Does nothing in a process that has imported it, or pandas, before."""
    if "pandas" in sys.modules or "pyarrow.dataset" in sys.modules:
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    finder.hidden_from = threading.get_ident()
    try:
        import pyarrow.dataset  # noqa: F401
    finally:
        finder.hidden_from = None


class _PandasFinder:
    """Finds pandas, with a loader that tells pyarrow.

    Attributes:
        hidden_from: the thread that cannot import pandas at the moment.
    """

    hidden_from: int | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _PandasLoader(self, found.loader)
        return found


class _PandasLoader(Loader):
    """The loader of pandas. After the import pyarrow knows pandas."""

    def __init__(self, finder: _PandasFinder, loader: Loader) -> None:
        self._finder = finder
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        if self._finder.hidden_from == threading.get_ident():
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        import pyarrow as pa

        _ = pa.lib._pandas_api.compat  # looks for pandas again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
