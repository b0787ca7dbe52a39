"""The unseen benchmark draws the same questions for a seed, and its questions have the same answers in DuckDB.

`OMNIGRAPH_UNSEEN=<number>` sets the number of questions to each graph; a disagreement names its seed and question.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import omnigraph
import unseen
from asking import cypher, gq, ours, sql
from asking.compare import same
from asking.draw import Extensions, questions
from asking.estimate import Estimates
from asking.graphs import GRAPHS, Graph, tables, write_files
from asking.race import LIMIT, Race
from asking.shapes import SHAPES
from omnigraph.lang.query import compile_query
from omnigraph.lang.schema import compile_schema
from study.contender import Contender
from study.on_duckdb import store as store_in_duckdb

QUESTIONS = int(os.environ.get("OMNIGRAPH_UNSEEN") or 120)
SIZE = 0.0008
"""Some hundred edges of each type."""
MOST_ROWS = 50_000
SEED = 5
ALL = Extensions(stages=True, subqueries=True)


def test_the_graphs_are_deterministic_and_have_no_edge_twice() -> None:
    for graph in GRAPHS.values():
        first, second = tables(graph, SIZE), tables(graph, SIZE)
        assert all(first[name].equals(second[name]) for name in first)
        for edge in graph.edges:
            pairs = first[edge.name].to_pylist()
            assert len({(pair["from"], pair["to"]) for pair in pairs}) == len(pairs) > 0
            assert max(pair["to"] for pair in pairs) < first[edge.target].num_rows


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_seed_decides_the_questions(graph: Graph) -> None:
    first, second, other = (list(islice(questions(seed, graph), 50)) for seed in (1, 1, 2))
    assert first == second
    assert [gq.render(question) for question in first] != [gq.render(question) for question in other]


def test_questions_have_all_shapes_and_features() -> None:
    drawn = [question for graph in GRAPHS.values() for question in islice(questions(SEED, graph, extensions=ALL), 200)]
    assert {question.shape for question in drawn} == set(SHAPES)
    features = Counter(feature for question in drawn for feature in question.features)
    assert all(features[name] > 20 for name in ("filter", "inequality", "not", "optional", "stage", "subquery"))
    assert {name for name in features if name.startswith("returns")} == {
        f"returns {kind}" for kind in ("count", "aggregate", "group", "top groups", "distinct", "top rows")
    }


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_every_question_compiles_and_has_a_text_in_each_language(graph: Graph) -> None:
    catalog = compile_schema(ours.schema(graph))
    for question in islice(questions(SEED, graph, extensions=ours.extensions()), 100):
        compile_query(gq.render(question), catalog)
        assert sql.render(question).count("(") == sql.render(question).count(")")
        assert cypher.render(question).startswith("MATCH (")


def test_answers_are_compared_as_rows_in_any_order() -> None:
    one = pa.table({"c0": ["a", "b", None], "c1": [0.1 + 0.2, 2.0, None]})
    assert same(one, pa.table({"c0": [None, "b", "a"], "c1": [None, 2.0, 0.3]}))
    assert not same(one, pa.table({"c0": [None, "b", "a"], "c1": [None, 2.0, 0.31]}))
    assert not same(one, one.slice(1))
    assert not same(pa.table({"c0": [1, None]}), pa.table({"c0": [1, 0]}))


class Answering:
    """An engine that has one answer to everything, and takes a second for it, or longer than it may."""

    def __init__(self, number: int, *, seconds: float = 1.0) -> None:
        self.table = pa.table({"c0": [number]})
        self.seconds = seconds

    def order(self, *words: object) -> object:
        order, _, seconds, file = words
        if self.seconds > float(str(seconds)):
            return ["stopped", "out of time"]
        if order == "answer":
            with pa.ipc.new_file(str(file), self.table.schema) as sink:
                sink.write_table(self.table)
        return ["done", self.seconds]


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({"duckdb": Answering(1), "ladybug": Answering(1), "ours": Answering(1)}, ""),
        ({"duckdb": Answering(1), "ladybug": Answering(2), "ours": Answering(1)}, "ladybug"),
        ({"duckdb": Answering(1), "ladybug": Answering(1), "ours": Answering(2)}, "ours"),
        ({"duckdb": Answering(1), "ours": Answering(2)}, "ours"),
        ({"duckdb": Answering(1, seconds=20), "ladybug": Answering(1), "ours": Answering(2)}, "ours"),
    ],
)
def test_the_engine_with_a_wrong_answer_is_named(tmp_path: Path, answers: dict[str, Answering], wrong: str) -> None:
    outcome = Race(answers, tmp_path).run(next(questions(SEED, GRAPHS["social"])))
    assert outcome is not None
    assert outcome.wrong == wrong
    assert outcome.ours == 1


def test_questions_that_no_peer_answers_are_left_out(tmp_path: Path) -> None:
    question = next(questions(SEED, GRAPHS["social"]))
    slow, wrong, ours_ = Answering(1, seconds=20), Answering(2), Answering(1)
    assert Race({"duckdb": slow, "ours": ours_}, tmp_path).run(question) is None
    assert Race({"duckdb": slow, "ladybug": wrong, "ours": ours_}, tmp_path).run(question) is None


def test_an_engine_that_does_not_finish_counts_with_the_limit(tmp_path: Path) -> None:
    engines = {"duckdb": Answering(1), "ladybug": Answering(1, seconds=11), "ours": Answering(1, seconds=12)}
    outcome = Race(engines, tmp_path).run(next(questions(SEED, GRAPHS["social"])))
    assert outcome is not None
    assert outcome.ratio == LIMIT
    assert set(outcome.stopped) == {"ladybug", "ours"}


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [QUESTIONS, pytest.param(3_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_duckdb_gives_the_same_answers(graph: Graph, wanted: int, tmp_path: Path) -> None:
    write_files(graph, tmp_path / "files", SIZE)
    ours.store(tmp_path / "files", tmp_path / "ours", graph)
    store_in_duckdb(tmp_path / "files", tmp_path / "duckdb")
    estimates = Estimates(tmp_path / "files")
    drawn = questions(SEED, graph, SIZE, ours.extensions())
    possible = (question for question in drawn if estimates.rows(question) < MOST_ROWS)
    with_rows = 0
    with omnigraph.open(tmp_path / "ours", read_only=True) as mine, duckdb.connect(str(tmp_path / "duckdb")) as base:
        for question in islice(possible, wanted):
            found = mine.query(gq.render(question)).to_arrow()
            expected = base.sql(sql.render(question)).to_arrow_table()
            texts = f"{gq.render(question)}\n{sql.render(question)}"
            assert same(found, expected), (
                f"{texts}\nwe say\n{found.to_pylist()[:9]}\nDuckDB\n{expected.to_pylist()[:9]}"
            )
            with_rows += found.num_rows > 0
    assert with_rows > wanted / 2


@pytest.mark.slow
def test_the_unseen_benchmark_runs_at_a_small_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here, missing = (
        Contender(rival.name, rival.script, python, rival.module)
        for rival, python in zip(unseen.RIVALS, (Path(sys.executable), tmp_path / "nowhere"), strict=True)
    )
    flags = ["--quick", "--graph", "social", "--size", "0.001", "--questions", "6", "--seed", "7"]
    files = ["--json", str(tmp_path / "out.json"), "--worst", str(tmp_path / "worst.txt")]
    with pytest.raises(SystemExit) as stop:
        unseen.main([*flags, *files], (here, missing))
    assert stop.value.code == 0
    printed = capfd.readouterr().out
    assert "ladybug is not installed" in printed
    assert "shape " in printed
    assert "step " in (tmp_path / "worst.txt").read_text(encoding="utf-8")
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert len({timing["name"] for timing in report["timings"]}) == 6
    assert [goal["name"] for goal in report["goals"]] == ["answers that differ from those of the peers"]
