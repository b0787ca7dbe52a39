"""Evaluation of IR expressions on Arrow columns: bind parameters, compute values, and derive filters for scans."""

from omnigraph.evaluate.bind import bind, undeclared
from omnigraph.evaluate.expression import evaluate, holds
from omnigraph.evaluate.prefilter import implied_ids, prefilter
from omnigraph.evaluate.rows import Request, Rows, table_rows

__all__ = ["Request", "Rows", "bind", "evaluate", "holds", "implied_ids", "prefilter", "table_rows", "undeclared"]
