"""Expressions of the IR over columns: parameters are bound, values computed, and filters handed to scans."""

from omnigraph.evaluate.bind import bind, undeclared
from omnigraph.evaluate.expression import evaluate, holds
from omnigraph.evaluate.prefilter import prefilter
from omnigraph.evaluate.rows import Request, Rows, table_rows

__all__ = ["Request", "Rows", "bind", "evaluate", "holds", "prefilter", "table_rows", "undeclared"]
