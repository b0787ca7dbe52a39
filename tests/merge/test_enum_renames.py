"""Enum values are followed by their identity: through renames in order, and not by a name that was used again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import omnigraph
from omnigraph import ConstraintError, Graph, MergeConflictsError, MergeSchemaError
from omnigraph.lang.schema import AcceptedSchema, TypeKind, accept, compile_schema, dump_ir, evolve, ir_hash, load_ir
from omnigraph.merge.enum_values import EnumValues, renaming

REUSE = ['active @rename_from("open"), done', "active, done, open"]
SWAP = ['w @rename_from("x"), y, z', 'w, x @rename_from("y"), z', 'y @rename_from("w"), x, z']


def _schema(values: str, kind: str = "enum({})") -> str:
    return f"node P {{ k: String @key  s: {kind.format(values)}  n: I32? }}"


def _do(graph: Graph, text: str, branch: str = "main") -> str:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch).commit
    assert commit is not None
    return commit.id


def _graph(path: Path, values: Sequence[str], kind: str = "enum({})") -> Graph:
    """A graph with one row per value, a tag and a branch."""
    graph = omnigraph.init(path / "graph", _schema(", ".join(values), kind))
    lists = kind.startswith("[")
    graph.load(
        [{"type": "P", "data": {"k": str(i), "s": [v] if lists else v}} for i, v in enumerate(values)], mode="append"
    )
    graph.tags.create("before")
    graph.branches.create("old")
    return graph


def _apply(graph: Graph, changes: Sequence[str], kind: str = "enum({})") -> None:
    for values in changes:
        graph.schema.apply(_schema(values, kind))


def _values(graph: Graph, branch: str = "main") -> dict[str, object]:
    rows = graph.snapshot(branch=branch).scan("node:P").to_pylist()
    return {row["id"]: row["s"] for row in rows}


def test_a_name_that_was_used_again_is_another_value(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done"])
    _apply(graph, REUSE)
    _do(graph, 'insert P { k: "2", s: "open" }', "old")
    _do(graph, 'update P set { n: 5 } where k = "0"', "old")
    assert graph.merge("old").is_clean
    assert _values(graph) == {"0": "active", "1": "done", "2": "active"}
    _do(graph, 'update P set { s: "open" } where k != "1"')
    graph.restore("P", ["0", "1"], at="before")
    assert _values(graph) == {"0": "active", "1": "done", "2": "open"}


def test_a_new_value_with_an_old_name_is_a_conflict_in_the_older_schema(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done"])
    _apply(graph, REUSE)
    _do(graph, 'insert P { k: "2", s: "open" }')
    _do(graph, 'insert P { k: "3", s: "active" }')
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("main", into="old")
    [conflict] = failed.value.conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("value_constraint_violation", "2")
    assert "open (another value of this name" in conflict.message
    _do(graph, 'update P set { s: "done" } where k = "2"')
    graph.merge("main", into="old")
    assert _values(graph, "old") == {"0": "open", "1": "done", "2": "done", "3": "open"}


def test_a_removed_value_that_is_added_again_is_another_value(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done"])
    _do(graph, 'update P set { s: "done" } where k = "0"')
    _apply(graph, ["done", "done, open"])
    _do(graph, 'update P set { n: 5 } where k = "0"', "old")
    assert graph.merge("old", level="property").is_clean  # the branch has not changed the value
    assert _values(graph) == {"0": "done", "1": "done"}
    _do(graph, 'insert P { k: "2", s: "open" }', "old")
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("old")
    assert [conflict.entity_id for conflict in failed.value.conflicts] == ["2"]
    with pytest.raises(ConstraintError, match=r"open \(another value"):
        graph.restore("P", "0", at="before")
    _do(graph, 'update P set { s: "done" } where k = "2"', "old")
    graph.merge("old")
    assert _values(graph) == {"0": "done", "1": "done", "2": "done"}


def test_two_values_that_swap_names_in_three_steps_are_followed(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["x", "y", "z"])
    first = graph.schema.show()
    _apply(graph, SWAP)
    assert _values(graph) == {"0": "y", "1": "x", "2": "z"}
    assert first == graph.schema.show(branch="old")
    _do(graph, 'update P set { s: "x" } where k = "2"', "old")
    picked = _do(graph, 'insert P { k: "3", s: "y" }', "old")
    graph.cherry_pick(picked)
    assert _values(graph) == {"0": "y", "1": "x", "2": "z", "3": "x"}
    assert graph.merge("old").is_clean
    assert _values(graph) == {"0": "y", "1": "x", "2": "y", "3": "x"}
    graph.restore("P", ["0", "1", "2"], at="before")
    assert _values(graph) == {"0": "y", "1": "x", "2": "z", "3": "x"}
    _do(graph, 'insert P { k: "4", s: "x" }')
    graph.merge("main", into="old")
    assert _values(graph, "old") == {"0": "x", "1": "y", "2": "z", "3": "y", "4": "y"}


def test_a_branch_update_and_a_revert_follow_values(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["x", "y", "z"])
    undone = _do(graph, 'update P set { s: "x" } where k = "1"')
    graph.branches.delete("old")
    graph.branches.create("old")
    _do(graph, 'insert P { k: "3", s: "x" }', "old")
    _do(graph, 'update P set { s: "y" } where k = "2"', "old")
    _apply(graph, SWAP)
    graph.branches.update("old")
    assert _values(graph, "old") == {"0": "y", "1": "y", "2": "x", "3": "y"}
    graph.revert(undone)
    assert _values(graph) == {"0": "y", "1": "x", "2": "z"}
    assert graph.merge("old").is_clean
    assert _values(graph) == {"0": "y", "1": "x", "2": "x", "3": "y"}


def test_lists_of_enum_values_are_followed(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["x", "y", "z"], "[enum({})]")
    _apply(graph, SWAP, "[enum({})]")
    graph.load([{"type": "P", "data": {"k": "3", "s": ["x", "z", "y"]}}], mode="append", branch="old")
    graph.merge("old")
    assert _values(graph) == {"0": ["y"], "1": ["x"], "2": ["z"], "3": ["y", "z", "x"]}


def test_a_rename_is_known_after_its_hint_was_removed(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done"])
    _apply(graph, ['active @rename_from("open"), done', "active, done, late"])
    _do(graph, 'update P set { n: 5 } where k = "0"', "old")
    _do(graph, 'insert P { k: "2", s: "open" }', "old")
    assert graph.merge("old", preview=True).conflicts == ()
    graph.merge("old")
    assert _values(graph) == {"0": "active", "1": "done", "2": "active"}
    assert graph.verify().ok


def test_an_enum_that_became_a_string_follows_renames_before_it(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done", "late"])
    _apply(graph, ['active @rename_from("open"), done, late'])
    graph.schema.apply(_schema("", "String"))
    _do(graph, 'insert P { k: "3", s: "open" }', "old")
    graph.merge("old")
    assert _values(graph)["3"] == "active"
    graph.branches.create("texts")
    _apply(graph, ["active, done, late, other", "active, done, late, other, more"])
    _apply(graph, ['now @rename_from("active"), done, late, other, more'])
    for key, text in {"4": "active", "5": "more", "6": "done"}.items():
        _do(graph, f'insert P {{ k: "{key}", s: "{text}" }}', "texts")
    graph.merge("texts")
    expected = {"0": "now", "1": "done", "2": "late", "3": "now", "4": "now", "5": "more", "6": "done"}
    assert _values(graph) == expected


def test_a_text_that_is_another_value_of_the_target_is_refused(tmp_path: Path) -> None:
    graph = _graph(tmp_path, ["open", "done"])
    _do(graph, 'update P set { s: "done" } where k = "0"')
    _apply(graph, ["done", "done, open"])  # this 'open' is another value
    graph.schema.apply(_schema("", "String"))
    _do(graph, 'insert P { k: "2", s: "open" }', "old")
    with pytest.raises(MergeSchemaError, match=r"'open' of P\.s means another enum value"):
        graph.merge("old")


def test_a_text_becomes_the_value_of_its_name_although_a_renamed_value_had_it(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", _schema("x, y"))
    _do(graph, 'insert P { k: "1", s: "x" }')
    _apply(graph, ['w @rename_from("x"), y'])
    graph.schema.apply(_schema("", "String"))
    _do(graph, 'insert P { k: "2", s: "x" }')
    graph.tags.create("texts")
    graph.branches.create("mid")
    graph.branches.create("late")
    _apply(graph, ["w, y, x"])
    assert _values(graph) == {"1": "w", "2": "x"}
    _do(graph, 'insert P { k: "3", s: "x" }', "mid")
    _do(graph, 'insert P { k: "4", s: "w" }', "mid")
    assert graph.merge("mid").is_clean
    expected = {"1": "w", "2": "x", "3": "x", "4": "w"}
    assert _values(graph) == expected
    _do(graph, 'insert P { k: "5", s: "x" }')
    assert graph.merge("main", into="mid").is_clean
    assert _values(graph, "mid") == expected | {"5": "x"}
    assert graph.branches.update("mid", preview=True).conflicts == ()
    _do(graph, 'update P set { s: "y" } where k = "2"')
    graph.restore("P", "2", at="texts")
    assert _values(graph) == expected | {"5": "x"}
    # The value of the text is renamed, and the renamed value gets its first name again.
    _apply(graph, ['w, y, z @rename_from("x")', 'x @rename_from("w"), y, z'])
    _do(graph, 'insert P { k: "6", s: "x" }', "late")
    _do(graph, 'insert P { k: "7", s: "w" }', "late")
    assert graph.merge("late").is_clean
    assert _values(graph) == {"1": "x", "2": "z", "3": "z", "4": "x", "5": "z", "6": "z", "7": "x"}
    assert graph.verify().ok


def test_a_text_is_another_value_than_one_that_was_added_after_its_own_was_removed(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", _schema("x, y"))
    _apply(graph, ['w @rename_from("x"), y'])
    graph.schema.apply(_schema("", "String"))
    graph.branches.create("mid")
    _apply(graph, ["w, y, x", "w, y", "w, y, x"])
    _do(graph, 'insert P { k: "1", s: "x" }', "mid")
    _do(graph, 'insert P { k: "2", s: "y" }', "mid")
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("mid")
    [conflict] = failed.value.conflicts
    assert (conflict.entity_id, "x (another value of this name)" in conflict.message) == ("1", True)
    graph.merge("mid", strategy="ours")
    assert _values(graph) == {"2": "y"}


def _accepted_values(accepted: AcceptedSchema) -> EnumValues:
    [prop] = [one for one in accepted.catalog.nodes["P"].properties.values() if one.name == "s"]
    return EnumValues(prop.type, accepted.identity(TypeKind.NODE, "P").enum("s"))


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_of_an_enum_agree_with_a_model(seed: int) -> None:
    """The model gives each value a number when it is added, and compares all pairs of schemas by these numbers."""
    chance = random.Random(seed)
    names = ["a", "b", "c", "d", "e"]
    model = {"a": 0, "b": 1, "c": 2}
    numbers = 2
    accepted = accept(compile_schema(_schema(", ".join(model))), "01J00000000000000000000000")
    states = [(accepted, dict(model))]
    for _ in range(12):
        hints: dict[str, str] = {}
        after = dict(model)
        free = [name for name in names if name not in after]
        if free and chance.random() < 0.6:
            old, new = chance.choice(sorted(after)), chance.choice(free)
            after[new] = after.pop(old)
            hints[new] = old
            free = [name for name in free if name != new]
        if free and chance.random() < 0.4:
            numbers += 1
            after[chance.choice(free)] = numbers
        if len(after) > 2 and chance.random() < 0.3:
            gone = chance.choice([name for name in sorted(after) if name not in hints])
            del after[gone]
        if after == model:
            continue
        texts = [f'{name} @rename_from("{hints[name]}")' if name in hints else name for name in sorted(after)]
        accepted = evolve(accepted, compile_schema(_schema(", ".join(texts))))
        assert load_ir(dump_ir(accepted)) == accepted
        assert accepted.next_id >= states[-1][0].next_id
        model = after
        states.append((accepted, dict(model)))
    for source, before in states:
        for target, now in states:
            assert before == now or ir_hash(source) != ir_hash(target)
            pairs = dict(renaming(_accepted_values(source), _accepted_values(target)).pairs)
            for name, number in before.items():
                found = pairs.get(name, name)
                expected = [other for other, one in now.items() if one == number]
                assert [found] == expected if expected else found not in now


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_between_enum_and_string_agree_with_a_model(seed: int) -> None:
    """The model numbers the values of an enum, and also the texts of a String, which are the values of a later enum.

    If the enum after a String lacks a text, a later value or text with its name may count as the same or not.
    """
    chance = random.Random(seed)
    names = ["a", "b", "c", "d"]
    numbers = iter(range(10**6))
    model = {name: next(numbers) for name in names[:3]}
    accepted = accept(compile_schema(_schema(", ".join(model))), "01J00000000000000000000000")
    states = [(accepted, dict(model), False)]
    is_text = False
    texts_of: dict[str, set[int]] = {name: set() for name in names}
    may_be: dict[int, set[int]] = {}
    for _ in range(14):
        hints: dict[str, str] = {}
        if is_text:  # to an enum
            model = {name: model[name] for name in chance.sample(names, 3)}
            is_text = False
            for name, number in model.items():  # these texts are values now
                texts_of[name] -= {number, *may_be.get(number, ())}
        elif chance.random() < 0.3:  # to a String
            added = {name: next(numbers) for name in names if name not in model}
            may_be |= {number: set(texts_of[name]) for name, number in added.items()}
            model = model | added
            is_text = True
            for name, number in model.items():
                texts_of[name] |= {number, *may_be.get(number, ())}
        else:
            free = [name for name in names if name not in model]
            old = chance.choice(sorted(model))
            if free and chance.random() < 0.7:
                hints[free[0]] = old
                model = {free[0] if name == old else name: number for name, number in model.items()}
            elif free:
                model = model | {free[0]: next(numbers)}
                may_be[model[free[0]]] = set(texts_of[free[0]])
            else:
                model = {name: number for name, number in model.items() if name != old}
        texts = [f'{name} @rename_from("{hints[name]}")' if name in hints else name for name in sorted(model)]
        text = _schema("", "String") if is_text else _schema(", ".join(texts))
        accepted = evolve(accepted, compile_schema(text))
        assert load_ir(dump_ir(accepted)) == accepted
        states.append((accepted, dict(model), is_text))
    for place, (source, before, _) in enumerate(states):
        for target, now, into_text in states[place:]:  # schemas only go forward
            found = renaming(_accepted_values(source), _accepted_values(target))
            pairs = dict(found.pairs)
            for name, number in before.items():
                if number in now.values():
                    [expected] = [other for other, one in now.items() if one == number]
                    assert name not in found.refused
                    assert pairs.get(name, name) == expected
                elif not into_text and pairs.get(name, name) in now:
                    assert number in may_be.get(now[pairs.get(name, name)], ())
