"""Evaluation of IR expressions on Arrow columns: bind parameters, compute values, and derive filters for scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.evaluate.bind import bind, undeclared
from omnigraph.evaluate.rows import Request, Rows, table_rows
from omnigraph.lazy_names import lazy_names

if TYPE_CHECKING:
    from omnigraph.evaluate.expression import evaluate, holds
else:
    __getattr__ = lazy_names(__name__, {"expression": ("evaluate", "holds")})

__all__ = ["Request", "Rows", "bind", "evaluate", "holds", "table_rows", "undeclared"]
