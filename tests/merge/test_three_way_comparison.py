"""The three-way comparison: equality, the verdict for each row, and equal results for a comparison in parts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.merge.choices import Choice, Choices, Strategy, resolved
from omnigraph.merge.classify import DIFFERS, VERDICT, Verdict, classify
from omnigraph.merge.equality import identical
from omnigraph.write.rows.hashing import digests

NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "left", "right", "same"),
    [
        (pa.utf8(), [None, None, "", "a"], [None, "", "", "b"], [True, False, True, False]),
        (pa.float64(), [NAN, 0.0, 1.0, None], [NAN, -0.0, 1.0, NAN], [True, False, True, False]),
        (pa.float32(), [NAN, 0.5], [0.5, 0.5], [False, True]),
        (pa.list_(pa.utf8()), [None, [], [""], [None], ["a"]], [[], [], [None], [None], ["a", "a"]], [0, 1, 0, 1, 0]),
        (pa.list_(pa.float32(), 2), [[1, NAN], None, [1, 2]], [[1, NAN], [1, 2], [1, 3]], [True, False, False]),
        (pa.bool_(), [None, True, False], [False, True, True], [False, True, False]),
        (pa.uint64(), [2**64 - 1, 0], [2**64 - 1, None], [True, False]),
        (pa.date64(), [0, 86_400_001], [0, 86_400_000], [True, False]),
        (pa.binary(3), [b"abc", None], [b"abd", None], [False, True]),
        (pa.utf8(), [], [], []),
    ],
)
def test_comparison_distinguishes_null_empty_and_signed_zero(
    kind: pa.DataType, left: list[Any], right: list[Any], same: list[Any]
) -> None:
    one, other = pa.array(left, kind), pa.array(right, kind)
    assert identical(one, other).tolist() == [bool(s) for s in same]
    assert identical(other, one).tolist() == [bool(s) for s in same]
    # The same for a slice of a longer column.
    longer = pa.concat_arrays([other, one, other])
    assert identical(longer[len(other) : len(other) + len(one)], other).tolist() == [bool(s) for s in same]


def _table(rows: dict[str, Any]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.utf8()), "v": pa.array(list(rows.values()), pa.int64())})


BASE, SAME, ONE, OTHER, GONE = 0, 0, 1, 2, None
RULES = {
    # base, source, target
    (BASE, SAME, SAME): None,
    (BASE, SAME, ONE): None,
    (BASE, SAME, GONE): None,
    (BASE, ONE, SAME): Verdict.UPDATE,
    (BASE, GONE, SAME): Verdict.DELETE,
    (BASE, ONE, ONE): None,
    (BASE, GONE, GONE): None,
    (BASE, ONE, OTHER): Verdict.DIVERGENT_UPDATE,
    (BASE, GONE, ONE): Verdict.DELETED_BY_SOURCE,
    (BASE, ONE, GONE): Verdict.DELETED_BY_TARGET,
    (None, ONE, None): Verdict.INSERT,
    (None, None, ONE): None,
    (None, ONE, ONE): None,
    (None, ONE, OTHER): Verdict.DIVERGENT_INSERT,
}


@pytest.mark.parametrize(("rule", "verdict"), RULES.items())
def test_each_row_gets_the_verdict_of_the_three_way_rule(rule: tuple[Any, Any, Any], verdict: Verdict | None) -> None:
    found = classify(*(_table({} if value is None else {"a": value}) for value in rule))
    assert found["id"].to_pylist() == ([] if verdict is None else ["a"])
    assert found[VERDICT].to_pylist() == ([] if verdict is None else [verdict])
    if verdict is not None:
        assert found["v"].to_pylist() == [rule[1]], "the row of the source, where there is one"
        both = verdict in (Verdict.DIVERGENT_INSERT, Verdict.DIVERGENT_UPDATE)
        assert found[DIFFERS].to_pylist() == [[0] if both else []]


@pytest.mark.parametrize(("rule", "verdict"), RULES.items())
def test_the_same_change_is_a_conflict_if_one_side_alone_may_change_a_row(
    rule: tuple[Any, Any, Any], verdict: Verdict | None
) -> None:
    base, source, target = rule
    found = classify(*(_table({} if value is None else {"a": value}) for value in rule), exclusive=True)
    expected = Verdict.SAME_CHANGE if source == target != base else verdict
    assert found[VERDICT].to_pylist() == ([] if expected is None else [expected])


def test_a_conflict_names_the_columns_that_differ() -> None:
    base = pa.table({"id": ["a"], "x": [1], "y": [1], "z": [1]})
    source = pa.table({"id": ["a"], "x": [2], "y": [2], "z": [1]})
    target = pa.table({"id": ["a"], "x": [2], "y": [3], "z": [4]})
    assert classify(base, source, target)[DIFFERS].to_pylist() == [[1, 2]]


def _random(random: Random, ids: int) -> pa.Table:
    rows = {f"{i}": random.choice((0, 1, 2)) for i in range(ids) if random.random() < 0.8}
    names = list(rows)
    random.shuffle(names)
    return _table({name: rows[name] for name in names})


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_a_comparison_in_parts_equals_the_whole_comparison(parts: int, exclusive: bool) -> None:
    random = Random(parts)
    sides = [_random(random, 500) for _ in range(3)]
    whole = classify(*sides, exclusive=exclusive)
    found = []
    for part in range(parts):
        of_part = [side.filter(pa.array(digests([side["id"]]) % np.uint64(parts) == part)) for side in sides]
        found.append(classify(*of_part, exclusive=exclusive))
    assert pa.concat_tables(found).sort_by("id") == whole.sort_by("id").combine_chunks()
    possible = set(Verdict) if exclusive else set(Verdict) - {Verdict.SAME_CHANGE}
    assert {Verdict(v) for v in whole[VERDICT].to_pylist()} == possible, "all of them are met"


def test_an_unchanged_side_gives_no_conflicts() -> None:
    rows = _random(Random(1), 50)
    other = _random(Random(2), 50)
    assert classify(rows, rows, other).num_rows == 0
    assert classify(rows, other, other).num_rows == 0
    taken = classify(rows, other, rows)
    assert all(not Verdict(verdict).is_conflict for verdict in taken[VERDICT].to_pylist())


def test_resolutions_and_strategies_choose_a_side() -> None:
    sides = [_random(Random(seed), 300) for seed in (3, 4, 5)]
    answer = classify(*sides)
    torn = [i for i, v in zip(answer["id"].to_pylist(), answer[VERDICT].to_pylist(), strict=True) if v >= 4]
    said: dict[Any, str] = {("T", torn[0]): "ours", ("T", torn[1]): "theirs"}
    found = resolved(answer, Choices.given(None, said, lambda name: f"node:{name}").of("node:T"))
    assert set(found.conflict_rows["id"].to_pylist()) == set(torn[2:])
    assert (set(found.named.to_pylist()), found.count) == (set(torn[:2]), 2)
    assert torn[0] not in found.done["id"].to_pylist()
    assert torn[1] in found.done["id"].to_pylist()
    theirs = resolved(answer, Choice(Strategy.THEIRS))
    assert (theirs.conflict_rows.num_rows, theirs.count, len(theirs.named)) == (0, len(torn), 0)
    assert {Verdict(v) for v in theirs.done[VERDICT].to_pylist()} == {Verdict.INSERT, Verdict.UPDATE, Verdict.DELETE}
    # With `ours`, the target gets all rows without a conflict.
    ours = resolved(answer, Choice(Strategy.OURS))
    assert set(ours.done["id"].to_pylist()) == set(answer["id"].to_pylist()) - set(torn)
