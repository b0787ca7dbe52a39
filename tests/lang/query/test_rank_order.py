"""An entity without a rank is never the best one, in every form of ordering by a rank.

If the rank is the order clause itself, such an entity is not in the result.
"""

from __future__ import annotations

import pytest
from tests.lang.query.catalogs import papers

from omnigraph.lang.query import compile_query, ir

RANKS = {
    "nearest": 'nearest($p.abstract_vec, "x")',
    "bm25": 'bm25($p.title, "x")',
    "rrf": 'rrf(nearest($p.abstract_vec, "x"), bm25($p.title, "x"))',
}


def read(returns: str, order: str) -> ir.Read:
    text = f"query q() {{ match {{ $p: Paper }} return {{ {returns} }} order {{ {order} }} limit 3 }}"
    body = compile_query(text, papers()).body
    assert isinstance(body, ir.Read)
    return body


def sort_key(returns: str, order: str) -> ir.SortKey:
    return read(returns, order).order[0]


@pytest.mark.parametrize("rank", RANKS)
def test_missing_ranks_sort_last(rank: str) -> None:
    best_first = "" if rank == "nearest" else " desc"
    assert not sort_key("$p.doi", RANKS[rank]).nulls_first
    assert not sort_key(f"$p.doi, {RANKS[rank]} as score", f"score{best_first}").nulls_first
    assert not sort_key(f"{RANKS[rank]} as score, score as again", f"again{best_first}").nulls_first


def test_an_explicit_null_order_wins() -> None:
    assert sort_key(f"{RANKS['nearest']} as score", "score nulls first").nulls_first
    assert sort_key("$p.pages as pages", "pages").nulls_first


@pytest.mark.parametrize("rank", RANKS)
def test_only_a_rank_in_the_order_clause_ranks_the_query(rank: str) -> None:
    whole = read("$p.doi", RANKS[rank])
    assert whole.ranked == whole.order[0].expr
    assert read(f"$p.doi, {RANKS[rank]} as score", "score").ranked is None
    assert read("$p.doi as doi", "doi").ranked is None
