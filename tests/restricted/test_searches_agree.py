"""Restricted searches agree with the oracle over the visible graph: frequencies, lengths and ranks count visible rows.

Without an index, with a partial and a full one. A developer's run tries 60 pairs, CI (if `CI` is set) 250, `make soak`
5,000. `OMNIGRAPH_SEARCHES=<number>` sets the number of pairs, `OMNIGRAPH_SEED=<number>` the first library.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from tests.read.queries import Query
from tests.read.test_oracle_agrees import compare, outcome, too_large
from tests.read.test_search_agrees import Library, searches
from tests.read.thresholds import turned
from tests.restricted.test_reads_agree import RestrictedReader, scopes

PAIRS = int(os.environ.get("OMNIGRAPH_SEARCHES") or (250 if os.environ.get("CI") else 60))
SEED = int(os.environ.get("OMNIGRAPH_SEED", "0"))
SHARES = 2
SCOPES, QUERIES = 3, 8


def pairs(library: Library, seed: int) -> Iterator[tuple[str, Query, RestrictedReader]]:
    for scope, states in scopes(library, seed, SCOPES):
        drawn = states[seed % len(states)]
        shown = drawn.catalog
        if not {"text", "vec", "other"} & {name for node in shown.nodes.values() for name in node.properties}:
            continue
        for number, query in enumerate(islice(searches(Random(f"searches {seed}/{scope}"), shown), QUERIES)):
            for reader in states:
                has_schema = reader.state.snapshot.schema_hash == drawn.state.snapshot.schema_hash
                if has_schema and not too_large(query, reader.state):
                    yield f"{scope}/{number}", query, reader


@pytest.mark.slow
@pytest.mark.parametrize("total", [PAIRS, pytest.param(5_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("share", range(SHARES))
def test_a_restricted_search_agrees_with_the_oracle(share: int, total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    done: Counter[str] = Counter()
    wanted = math.ceil(total / SHARES)
    for seed in count(SEED + share, SHARES):
        with TemporaryDirectory() as place, turned(Random(f"turned {seed}")) as numbers:
            library = Library(seed, Path(place) / "graph")
            for name, query, reader in islice(pairs(library, seed), wanted - done.total()):
                try:
                    done[compare(query, reader.state, outcome(query, reader))] += 1
                except Exception as error:
                    pytest.fail(
                        f"library {seed}, query {name}, state {reader.state.name!r}\n{type(error).__name__}: {error}\n"
                        f"{library.schema}\n{reader.rules}\n{query.text}\nwith {dict(query.given)}\n{numbers}",
                        pytrace=False,
                    )
            library.close()
        if done.total() >= wanted:
            break
    if wanted >= 100:
        assert done["rows"] > wanted / 8, done
