"""Packages whose names are imported at their first use, so that a process loads only the modules that it needs."""

# See docs/decisions/0250-a-lookup-loads-few-modules.md

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: import a public name from the module that defines it.

    A name must not be the name of a module of the package, because importing the module would hide it.

    Args:
        package: the full name of the package.
        homes: the names that each module of the package defines.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return __getattr__
