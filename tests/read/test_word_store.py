"""Inverted indexes on disk: read back without the texts, and rebuilt if they are stale or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from tests.read.searching import document_columns, library
from tests.thresholds import Thresholds

from omnigraph.errors import CancelledError
from omnigraph.graph import Graph
from omnigraph.lang.query import ir
from omnigraph.read.budget import Cancellation, Spending
from omnigraph.read.columns import derived_files, table_changes
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.derived_files import DerivedFiles, Origin
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.table_changes import origin_of
from omnigraph.read.search import index_update, word_store
from omnigraph.read.search.inverted_index import InvertedIndex
from omnigraph.read.search.word_store import load_inverted_index


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with library(tmp_path, docs=40) as graph:
        yield graph


@pytest.fixture
def files(tmp_path: Path, thresholds: Thresholds) -> DerivedFiles:
    thresholds(word_store, MIN_SAVED_TOKENS=1)
    return DerivedFiles(tmp_path / "cache")


def docs(graph: Graph) -> EntityTable:
    """The documents as another process reads them."""
    return EntityTable(graph.snapshot(), "node:Doc", ColumnCache())


def without_texts(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> EntityTable:
    space = docs(graph)
    assert space.slots  # numbers are read, and texts are not

    monkeypatch.setattr(space, "whole", _refuse)
    return space


def same(left: InvertedIndex, right: InvertedIndex) -> bool:
    arrays = all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("first", "entity", "begin", "place", "length", "has_text")
    )
    return arrays and left.vocabulary.equals(right.vocabulary) and left.texts == right.texts


def test_stored_words_share_the_directory_and_limit_of_topologies(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(word_store, MIN_SAVED_TOKENS=1)
    space = docs(graph)
    load_inverted_index(space, "text", ir.Analyzer())
    table = word_store._made(space, "text", ir.Analyzer()).table
    assert derived_files.process_files().find(table, space.fingerprint) is not None


def test_stored_words_are_read_back_without_the_texts(
    graph: Graph, files: DerivedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    found = load_inverted_index(without_texts(graph, monkeypatch), "text", ir.Analyzer(), files)
    assert made.total > 0
    assert same(made, found)
    assert same(made, InvertedIndex.of(docs(graph).column("text"), ir.Analyzer()))


def test_each_column_and_analyzer_has_its_own_words(graph: Graph, files: DerivedFiles) -> None:
    for name in ("text", "title"):
        for analyzer in (ir.Analyzer(), ir.Analyzer(stem=False)):
            load_inverted_index(docs(graph), name, analyzer, files)
    for name in ("text", "title"):
        for analyzer in (ir.Analyzer(), ir.Analyzer(stem=False)):
            found = load_inverted_index(docs(graph), name, analyzer, files)
            assert same(found, InvertedIndex.of(docs(graph).column(name), analyzer))


def test_a_changed_text_has_new_words(graph: Graph, files: DerivedFiles) -> None:
    before = load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    graph.mutate('query q() { update Doc set { text: "something else", told: null } where slug = "d001" }')
    after = load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    assert after.find("someth") is not None
    assert before.find("someth") is None
    assert same(after, InvertedIndex.of(docs(graph).column("text"), ir.Analyzer()))


CHANGES = {
    "came": lambda graph: graph.load(
        {"Doc": pa.table(document_columns(Random(5), ["new1", "a0", "d9999"]))}, mode="append", embed=False
    ),
    "written": lambda graph: graph.mutate(
        'query q() { update Doc set { text: "zebras and engines, engines", told: null } where slug = "d003" }'
    ),
    "nulled": lambda graph: graph.mutate('query q() { update Doc set { text: null, told: null } where slug = "d004" }'),
    "went": lambda graph: graph.mutate('query q() { delete Doc where slug in ["d000", "d001", "d017"] }'),
    "nothing": lambda graph: graph.mutate('query q() { insert Note { slug: "x", title: "y" } }'),
}


@pytest.mark.parametrize("known", ["memory", "disk"])
@pytest.mark.parametrize("changes", [*((name,) for name in CHANGES), tuple(CHANGES), tuple(reversed(CHANGES))])
def test_words_of_an_earlier_version_are_updated_incrementally(
    graph: Graph,
    files: DerivedFiles,
    monkeypatch: pytest.MonkeyPatch,
    thresholds: Thresholds,
    changes: tuple[str, ...],
    known: str,
) -> None:
    """Only new and updated texts are analysed, and the index equals one of all texts."""
    thresholds(index_update, REBUILD_RATIO=1)
    cache = ColumnCache()
    held = []
    for name in (None, *changes):
        if name is not None:
            CHANGES[name](graph)
        if known == "disk":
            cache = ColumnCache()
        for analyzer in (ir.Analyzer(), ir.Analyzer(stem=False)):
            space = EntityTable(graph.snapshot(), "node:Doc", cache)
            expected = InvertedIndex.of(docs(graph).column("text"), analyzer)
            if name is not None:
                monkeypatch.setattr(space, "whole", _refuse)
            held.append(load_inverted_index(space, "text", analyzer, files if known == "disk" else DerivedFiles(None)))
            assert same(held[-1], expected)
            assert held[-1].texts == expected.texts


@pytest.mark.parametrize("change", ["came", "written", "nothing"])
def test_words_are_not_updated_from_a_mismatching_version(graph: Graph, thresholds: Thresholds, change: str) -> None:
    thresholds(index_update, REBUILD_RATIO=1)
    before = docs(graph)
    words, origin = InvertedIndex.of(before.column("text"), ir.Analyzer()), origin_of(before)
    CHANGES[change](graph)

    def updated(origin: Origin) -> index_update.Update | None:
        return index_update.update_index(words, origin, docs(graph), "text", ir.Analyzer())

    assert updated(origin) is not None
    if change == "came":
        assert updated(replace(origin, count=origin.count - 1)) is None
        assert updated(replace(origin, count=origin.count + 1)) is None
    if change == "written":
        assert updated(replace(origin, count=origin.count - 2)) is None


@pytest.mark.parametrize("change", ["came", "written"])
def test_detecting_table_changes_can_be_cancelled(graph: Graph, change: str) -> None:
    origin = origin_of(docs(graph))
    CHANGES[change](graph)
    space, cancel = docs(graph), Cancellation()
    assert table_changes.change(origin, space, ["text"], 1) is not None
    cancel.cancel()
    with Spending(cancel=cancel).running(), pytest.raises(CancelledError):
        table_changes.change(origin, space, ["text"], 1)


def test_many_changes_rebuild_the_words(graph: Graph, files: DerivedFiles) -> None:
    load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    graph.mutate('query q() { update Doc set { text: "all the same", told: null } where slug != "d001" }')
    found = load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    assert same(found, InvertedIndex.of(docs(graph).column("text"), ir.Analyzer()))


def test_a_branch_updates_its_own_words_incrementally(graph: Graph, thresholds: Thresholds) -> None:
    """Later changes of the other branch are not mixed in."""
    thresholds(index_update, REBUILD_RATIO=1)
    cache, nowhere = ColumnCache(), DerivedFiles(None)
    graph.branches.create("side")
    held = []
    for branch, text in (("main", "one zebra"), ("side", "two lions"), ("main", "three"), ("side", "four")):
        graph.mutate(
            f'query q() {{ update Doc set {{ text: "{text}", told: null }} where slug = "d002" }}', branch=branch
        )
        space = EntityTable(graph.snapshot(branch=branch), "node:Doc", cache)
        held.append(load_inverted_index(space, "text", ir.Analyzer(), nowhere))
        other = EntityTable(graph.snapshot(branch=branch), "node:Doc", ColumnCache())
        assert same(held[-1], InvertedIndex.of(other.column("text"), ir.Analyzer()))


def _refuse(_: str) -> None:
    raise AssertionError("the texts are not to be read")


def test_building_an_index_keeps_stored_words_valid(
    graph: Graph, files: DerivedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    assert graph.ensure_indexes().commit is not None
    load_inverted_index(without_texts(graph, monkeypatch), "text", ir.Analyzer(), files)


@pytest.mark.parametrize("suffix", [".arrays", ".json"])
def test_damaged_word_files_are_rebuilt(graph: Graph, files: DerivedFiles, tmp_path: Path, suffix: str) -> None:
    expected = load_inverted_index(docs(graph), "text", ir.Analyzer(), files)
    (path,) = (tmp_path / "cache").glob(f"*{suffix}")
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 7):
        content[place] ^= 0x55
    path.write_bytes(content)
    assert same(load_inverted_index(docs(graph), "text", ir.Analyzer(), files), expected)
    path.write_bytes(content[: len(content) // 2])
    assert same(load_inverted_index(docs(graph), "text", ir.Analyzer(), files), expected)


def test_a_small_word_index_is_not_stored(graph: Graph, tmp_path: Path) -> None:
    load_inverted_index(docs(graph), "text", ir.Analyzer(), DerivedFiles(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
