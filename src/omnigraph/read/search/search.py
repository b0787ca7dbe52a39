"""Text and vector search in one read: text conditions, ranks, and the order by ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pyarrow as pa

from omnigraph.embed import Embedder, SearchText, embed_queries
from omnigraph.errors import ParameterError
from omnigraph.evaluate import Request
from omnigraph.lang.query import ir
from omnigraph.lang.schema import Catalog
from omnigraph.read.budget.budget import Spending
from omnigraph.read.budget.interruptible import run_interruptibly
from omnigraph.read.columns.entity_table import EntityTable
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.query.read_query import ReadQuery, ranked_variable
from omnigraph.read.rows.frame import Binding, Frame, FusedRanks
from omnigraph.read.search.bm25 import bm25
from omnigraph.read.search.entities import Entities, by_id, gather, parts
from omnigraph.read.search.fusion import fused, fused_order
from omnigraph.read.search.inverted_index import InvertedIndex
from omnigraph.read.search.rankings import ArmValues
from omnigraph.read.search.scores import ApproximateScores, PartialScores, Scores
from omnigraph.read.search.vector_index import nearest_by_index
from omnigraph.read.search.vector_sketch import Vector
from omnigraph.read.search.vectors import Vectors, streamed_distances
from omnigraph.read.search.word_store import load_inverted_index
from omnigraph.storage.indexes import text_index
from omnigraph.storage.text_analysis import words_of

_MAX_EDITS = 2

MIN_INDEXED_ENTITIES = 100_000
"""The Lance text index is not used for tables with fewer entities than this."""

_INDEX_SEARCHES = 16
"""After this number of searches of a table with the Lance text index, an inverted index is built in memory."""

SPARSE_RATIO = 8
"""If more than one in `SPARSE_RATIO` vectors is needed, all vectors of the property are read."""

SPARSE_READS = 16
"""After this number of reads of a few vectors, all vectors of the property are read and cached."""


class Search:
    """Text and vector search in one read. Results of text conditions and ranks are cached until the read ends."""

    def __init__(
        self,
        request: Request,
        budget: Spending,
        catalog: Catalog,
        embedder: Callable[[], Embedder] | None = None,
    ) -> None:
        self._request = request
        self._budget = budget
        self._catalog = catalog
        self._embedder = embedder
        self._matches: dict[tuple[ir.TextMatch, tuple[str, ...]], list[Mask]] = {}
        self._relevances: dict[tuple[ir.Bm25, tuple[str, ...]], list[Scores]] = {}
        self._queries: dict[ir.Nearest, Vector | None] = {}
        self._measured: dict[tuple[ir.Nearest, str], tuple[Numbers, Scores]] = {}
        """For each search and table, the last computed distances, with their entities (ascending)."""

    # Values per row

    def values(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest, binding: Binding) -> pa.Array:
        """For each row of a binding, the value of a text condition or rank."""
        if isinstance(expr, ir.TextMatch):
            return pa.array(gather(binding, self._matching(expr, binding.tables), False, np.bool_))
        scores = self._scores(expr, binding)
        return pa.array(scores, mask=np.isnan(scores))

    def _scores(self, expr: ir.Bm25 | ir.Nearest, binding: Binding) -> Scores:
        if isinstance(expr, ir.Bm25):
            return gather(binding, self._relevance(expr, binding.tables), np.nan, np.float64)
        query = self._query(expr, binding)
        entities = Entities.of(binding)
        found = np.full(len(entities.binding.numbers), np.nan)
        for table, rows in parts(entities.binding):
            if query is not None and len(rows) and table.has_column(expr.field.name):
                found[rows] = self._distances(expr, query, table, entities.binding.numbers[rows])
        return entities.spread(found)

    def _distances(self, expr: ir.Nearest, query: Vector, table: EntityTable, numbers: Numbers) -> Scores:
        """Vector distances of the given entities (ascending). They are cached, because the top rows need them again."""
        key = (expr, table.key)
        if key in self._measured:
            known, far = self._measured[key]
            at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            if np.array_equal(known[at], numbers):
                return far[at]
        if self._is_streamed(table, expr.field.name, len(numbers)):
            found = streamed_distances(table, expr.field.name, query, expr.metric, numbers)
        else:
            vectors, places = self._vectors(table, expr.field.name, numbers)
            found = vectors.distances(query, expr.metric, places)
        self._measured[key] = (numbers, found)
        return found

    def _approximate(self, expr: ir.Bm25 | ir.Nearest, binding: Binding, count: int | None = None) -> ApproximateScores:
        """Approximate scores of the entities of a binding.

        If `count` is given, the scores of entities that cannot be among the top `count` are infinite.
        """
        self._budget.spend(len(binding.numbers), 2)
        if isinstance(expr, ir.Bm25):
            # Scores are rounded to single precision, so this is exact.
            narrow = self._scores(expr, binding).astype(np.float32)
            return ApproximateScores(np.negative(narrow, out=narrow), 0.0)
        query = self._query(expr, binding)
        found: list[tuple[Numbers, ApproximateScores]] = []
        for table, rows in parts(binding):
            if query is not None and len(rows) and table.has_column(expr.field.name):
                if self._is_streamed(table, expr.field.name, len(rows)):
                    found.append(
                        (rows, ApproximateScores(self._distances(expr, query, table, binding.numbers[rows]), 0.0))
                    )
                    continue
                vectors, numbers = self._vectors(table, expr.field.name, binding.numbers[rows])
                approximate = vectors.approximate if count is None else partial(vectors.approximate_top, count=count)
                found.append((rows, approximate(query, expr.metric, numbers)))
        if len(found) == 1 and len(found[0][0]) == len(binding.numbers):
            return found[0][1]
        values = np.full(len(binding.numbers), np.nan)
        for rows, part in found:
            values[rows] = part.values
        return ApproximateScores(values, max((part.error for _, part in found), default=0.0))

    # Text

    def _matching(self, expr: ir.TextMatch, tables: tuple[EntityTable, ...]) -> list[Mask]:
        key = (expr, tuple(table.key for table in tables))
        if key not in self._matches:
            self._matches[key] = [self._match(expr, table) for table in tables]
        return self._matches[key]

    def _match(self, expr: ir.TextMatch, table: EntityTable) -> Mask:
        text = self._text(expr.query)
        if text is None or not table.has_column(expr.field.name):
            return np.zeros(table.slots, bool)
        analyzer = expr.analyzer
        if expr.mode is ir.TextMode.FUZZY:
            # The edit distance is computed between whole words, not between their stems.
            analyzer = _unstemmed(analyzer)
        query, places = words_of(text, analyzer)
        if not query:
            return np.zeros(table.slots, bool)
        named = self._by_text_index(expr, table, text)
        if named is not None:
            return named
        words = self._words(table, expr.field.name, analyzer)
        match expr.mode:
            case ir.TextMode.ANY:
                return words.any_of(query)
            case ir.TextMode.ALL:
                return words.all_of(query)
            case ir.TextMode.PHRASE:
                return words.phrase(query, places)
        assert expr.edits is not None
        edits = self._number(
            expr.edits, "the number of edits of `fuzzy` has to be a whole number from 0 to 2", range(_MAX_EDITS + 1)
        )
        return words.fuzzy(query, edits)

    def _by_text_index(self, expr: ir.TextMatch, table: EntityTable, text: str) -> Mask | None:
        """Mask of the matching entities, found with the Lance text index.

        Returns None if an inverted index has to be used instead.
        """
        name, phrase = expr.field.name, expr.mode is ir.TextMode.PHRASE
        label = _words_label(name, expr.analyzer)
        if expr.mode is ir.TextMode.FUZZY or table.count < MIN_INDEXED_ENTITIES or table.is_cached(label):
            return None
        specs = [text_index(name, expr.analyzer, positions=True)]
        if not phrase:
            specs.append(text_index(name, expr.analyzer, positions=False))
        if not any(map(table.covered_by, specs)) or not table.should_defer(label, table.count // _INDEX_SEARCHES):
            return None
        found = np.zeros(table.slots, bool)
        found[table.matching(name, text, phrase=phrase, every_word=expr.mode is ir.TextMode.ALL)] = True
        return found

    def _relevance(self, expr: ir.Bm25, tables: tuple[EntityTable, ...]) -> list[Scores]:
        key = (expr, tuple(table.key for table in tables))
        if key not in self._relevances:
            text = self._text(expr.query)
            # A variable of an enclosing block or an earlier stage may have types without the property.
            there = [table for table in tables if table.has_column(expr.field.name)]
            words = [self._words(table, expr.field.name, expr.analyzer) for table in there]
            scores = iter(bm25(words, [] if text is None else words_of(text, expr.analyzer)[0]))
            missing = {table.key for table in tables} - {table.key for table in there}
            self._relevances[key] = [
                np.full(table.slots, np.nan) if table.key in missing else next(scores) for table in tables
            ]
        return self._relevances[key]

    def _words(self, table: EntityTable, name: str, analyzer: ir.Analyzer) -> InvertedIndex:
        with table.slot(_words_label(name, analyzer)) as slot:
            found: InvertedIndex | None = slot.value
            return slot.keep(load_inverted_index(table, name, analyzer)) if found is None else found

    def _text(self, expr: ir.Expr) -> str | None:
        text = _query_value(expr, self._request)
        assert text is None or isinstance(text, str)
        return text

    def _number(self, expr: ir.Const | ir.Param, rule: str, allowed: range) -> int:
        number = _query_value(expr, self._request)
        if not isinstance(number, int) or number not in allowed:
            assert isinstance(expr, ir.Param), "a literal was checked"
            raise ParameterError(expr.name, rule)
        return number

    # Vectors

    def _vectors(self, table: EntityTable, name: str, numbers: Numbers) -> tuple[Vectors, Numbers]:
        """A matrix that includes the vectors of the given entities, and the row of each given entity in the matrix.

        If only a few vectors are needed, and the vectors are not all in memory, only the needed vectors are read.
        """
        label = f"vectors of {name}"
        if table.is_cached(label) or not self._reads_few(table, name, len(numbers)):
            with table.slot(label) as slot:
                found: Vectors = slot.keep(Vectors.of(table.whole(name))) if slot.value is None else slot.value
            return found, numbers
        return Vectors.of(table.take(name, numbers)), np.arange(len(numbers))

    def _reads_few(self, table: EntityTable, name: str, count: int) -> bool:
        """Whether to read only the `count` vectors that are needed.

        After enough such reads, all vectors are read and cached.
        """
        if count * SPARSE_RATIO > table.count:
            return False
        if not _all_fit(table, name):
            return True
        return table.should_defer(f"vectors of {name}", SPARSE_RATIO * count + table.count // SPARSE_READS)

    def _is_streamed(self, table: EntityTable, name: str, count: int) -> bool:
        """Whether to stream the vectors from the table, because many are needed, and they do not fit the cache."""
        return not _all_fit(table, name) and not table.are_few(count)

    def _query(self, expr: ir.Nearest, binding: Binding) -> Vector | None:
        """The query vector of a vector search; None if it is null."""
        if expr not in self._queries:
            self._embed({expr: [table.type_name for table in binding.tables]})
        return self._queries[expr]

    def _embed(self, wanted: Mapping[ir.Nearest, Sequence[str]]) -> None:
        """Find the query vectors of searches. All query texts are embedded in one request."""
        sought: dict[ir.Nearest, SearchText] = {}
        for expr, types in wanted.items():
            given = _query_value(expr.query, self._request)
            if isinstance(given, str) and types:
                target = self._catalog.nodes[types[0]].properties[expr.field.name]
                sought[expr] = SearchText(given, target, types[0])
            else:
                known = given is not None and not isinstance(given, str)
                self._queries[expr] = np.array(given, np.float32) if known else None
        if sought:
            embedder = self._embedder
            assert embedder is not None, "this read has no embedder for texts"
            texts = list(sought.values())
            vectors = run_interruptibly(lambda: embed_queries(embedder(), texts))
            self._queries |= zip(sought, vectors, strict=True)

    # Order by rank

    def prepare(self, query: ReadQuery) -> None:
        """Embed all query texts of a read and of its stages. Call it before the read is executed."""
        wanted: dict[ir.Nearest, Sequence[str]] = {}
        types: dict[str, Sequence[str]] = {}
        for part in (*query.stages, query):
            types |= {node.name: node.types for node in _nodes(part.read.match)}
            found = (rank for rank in part.ranks if isinstance(rank, ir.Nearest) and rank not in self._queries)
            wanted |= {rank: types[rank.field.var] for rank in found}
        if wanted:
            self._embed(wanted)

    def share_queries(self, other: Search) -> None:
        """Copy the query vectors from another `Search` object of the same read."""
        self._queries |= other._queries

    def fuse(self, query: ReadQuery, frame: Frame, first: ir.Rank | None = None, count: int | None = None) -> Frame:
        """Compute the fused ranks of all rows of a match, and return the rows with their ranks.

        Args:
            query: the query.
            frame: the rows.
            first: the rank that is the first sort key. If it is a fusion, rows that cannot be among the best
                `count` are removed.
            count: number of rows that are needed.
        """
        if frame.fused:
            return frame  # The fused ranks have already been computed for all rows of the match.
        fusions = {part for part in query.ranks if isinstance(part, ir.Fusion)}
        unseen = query.unseen_fusion
        found = {
            fusion: self._fused(fusion, frame, count if fusion == first else None, scored=fusion != unseen)
            for fusion in fusions
        }
        if isinstance(first, ir.Fusion) and count is not None:
            fused, back = found[first]
            rows = np.flatnonzero(fused.place != NOTHING if back is None else (fused.place != NOTHING)[back])
            if count <= len(rows) < frame.count:
                # Remove the rows that cannot be among the best.
                found = {fusion: (some, rows if of is None else of[rows]) for fusion, (some, of) in found.items()}
                frame = frame.take(rows)
        return frame.with_fused({fusion: some if of is None else some.take(of) for fusion, (some, of) in found.items()})

    def _fused(
        self, expr: ir.Fusion, frame: Frame, count: int | None, *, scored: bool
    ) -> tuple[FusedRanks, Numbers | None]:
        """Fused ranks of the distinct entities, and for each row the index of its entity (see `Entities.back`).

        If not `scored`, only the order of the best `count` is needed.
        """
        k = self._number(expr.k, "`k` of `rrf` has to be a whole number above zero", range(1, 2**63))
        entities = Entities.of(frame.bindings[ranked_variable(expr)])
        arms = [self._arm(arm, entities.binding) for arm in expr.arms]

        def ties(chosen: Numbers) -> Numbers:
            return by_id(entities.binding.take(chosen))

        found = None if scored or count is None else fused_order(arms, k, ties, count)
        return fused(arms, k, ties, count) if found is None else found, entities.back

    def _arm(self, arm: ir.Arm, binding: Binding) -> ArmValues:
        def exact(chosen: Numbers) -> Scores:
            scores = self._scores(arm.rank, binding.take(chosen))
            return scores if isinstance(arm.rank, ir.Nearest) else -scores

        rank = arm.rank
        part = partial(self._nearest_part, rank, binding) if isinstance(rank, ir.Nearest) else None
        return ArmValues(cache(partial(self._approximate, rank, binding)), exact, arm.weight, part)

    def _nearest_part(self, expr: ir.Nearest, binding: Binding, count: int, depth: int) -> PartialScores | None:
        """Scores of about `count` nearest entities; None if they cannot be found faster than all scores."""
        query, table, name = self._query(expr, binding), binding.tables[0], expr.field.name
        if query is None or binding.type_index is not None or bool((binding.numbers == NOTHING).any()):
            return None
        if self._is_streamed(table, name, len(binding.numbers)):
            return None
        vectors, numbers = self._vectors(table, name, binding.numbers)
        return vectors.nearest_part(query, expr.metric, numbers, count, depth)

    def best(self, rank: ir.Rank, frame: Frame, count: int | None) -> Frame:
        """The rows that have a score and can be among the best `count`."""
        if isinstance(rank, ir.Fusion):
            score = frame.fused[rank].score
            order = ApproximateScores(-score, 0.0)
            return frame.filter(order.candidates(len(score) if count is None else count))
        entities = Entities.of(frame.bindings[ranked_variable(rank)])
        named = self._by_vector_index(rank, entities.binding, count)
        if named is not None:
            return frame.filter(entities.spread(named))
        order = self._approximate(rank, entities.binding, count)
        kept = order.candidates(len(order.values) if count is None else count)
        if order.error:
            kept[kept] = ~np.isnan(self._scores(rank, entities.binding.take(np.flatnonzero(kept))))
        return frame.filter(entities.spread(kept))

    def _by_vector_index(self, rank: ir.Bm25 | ir.Nearest, binding: Binding, count: int | None) -> Mask | None:
        """Mask of the nearest entities, found with the vector index; None if exact distances have to be computed."""
        if not isinstance(rank, ir.Nearest) or binding.type_index is not None or count is None:
            return None
        query, (table,) = self._query(rank, binding), binding.tables
        if query is None or len(binding.numbers) * SPARSE_RATIO <= table.count:
            return None
        return nearest_by_index(table, rank, query, binding.numbers, count)


def _query_value(expr: ir.Expr, request: Request) -> ir.ConstValue:
    """The value that is searched for, or another argument of a search: a literal or the value of a parameter."""
    if isinstance(expr, ir.Const):
        return expr.value
    assert isinstance(expr, ir.Param), "a query is a literal or a parameter"
    return request.params[expr.name]


def _all_fit(table: EntityTable, name: str) -> bool:
    """Whether all vectors of a property fit the cache."""
    return table.fits(4 * table.count * int(table.schema.field(name).type.list_size))


def _words_label(name: str, analyzer: ir.Analyzer) -> str:
    return f"words of {name} by {analyzer}"


def _unstemmed(analyzer: ir.Analyzer) -> ir.Analyzer:
    return replace(analyzer, stem=False)


def _nodes(block: ir.Block) -> Iterator[ir.NodeVar]:
    yield from block.nodes
    for optional in block.optionals:
        yield from _nodes(optional)
