"""The type of the fixture `thresholds`."""

from __future__ import annotations

from types import ModuleType
from typing import Protocol


class Thresholds(Protocol):
    """Sets public constants of a module until the end of the test."""

    def __call__(self, module: ModuleType, **values: object) -> None: ...
