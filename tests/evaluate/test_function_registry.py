"""Every function of the registry can be checked and evaluated, and the other way round."""

from __future__ import annotations

from omnigraph.evaluate.functions import KERNELS
from omnigraph.lang.functions import AGGREGATES, FUNCTIONS
from omnigraph.lang.query import ir
from omnigraph.lang.query.check import search
from omnigraph.lang.query.check.functions import SCALAR_FUNCTIONS

SYNTAX = {"now", "date", "datetime", "type", "nodes", "edges", "coalesce"}


def test_every_function_has_a_check() -> None:
    assert set(FUNCTIONS) == AGGREGATES | SCALAR_FUNCTIONS | search.TEXT_FILTERS | search.RANKS | SYNTAX


def test_every_scalar_function_has_a_kernel() -> None:
    assert {function.value for function in KERNELS} | {"date_diff", "date_add"} == SCALAR_FUNCTIONS
    assert set(KERNELS) == set(ir.Function) - {ir.Function.COALESCE}


def test_aggregates_are_those_of_the_plan() -> None:
    assert {function.value for function in ir.AggregateFunction} == AGGREGATES


def test_signatures_begin_with_the_name() -> None:
    for name, function in FUNCTIONS.items():
        assert function.signature.startswith(f"{name}(")
        assert function.about.endswith(".")
