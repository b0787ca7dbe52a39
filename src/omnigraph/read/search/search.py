"""What one read searches: filters by words, and ranks as columns and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.embed import Sought, embed_queries
from omnigraph.errors import ParameterError
from omnigraph.evaluate import Request
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.read.match.frame import Binding, Frame
from omnigraph.read.plan.remembered import remembered
from omnigraph.read.search.entities import Entities, by_id, gather, parts
from omnigraph.read.search.fusion import ArmValues, Fused, fused
from omnigraph.read.search.indexed import named_by_index
from omnigraph.read.search.kept import words_of_column
from omnigraph.read.search.outline import Vector
from omnigraph.read.search.scores import Nearly, Scores
from omnigraph.read.search.vectors import Vectors, streamed_distances
from omnigraph.read.search.words import Words, relevance
from omnigraph.read.space.space import NOTHING, Mask, Numbers, Space
from omnigraph.read.waiting import waited_for
from omnigraph.storage.indexes import text_index
from omnigraph.storage.text_analysis import words_of

if TYPE_CHECKING:
    from omnigraph.read.context import Context

_MOST_EDITS = 2

_LARGE = 100_000
_TURNS = 16
"""An index answers for a table of so many entities at least, so many times; then its words are read into memory."""

_MANY = 8
"""When one of so many vectors is asked for, all are read."""

_OFTEN = 16
"""Few vectors are read alone so many times at most; then all are read."""


class Search:
    """Searching in one read. What is found for a condition or a rank is kept until the read ends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._matches: dict[tuple[ir.TextMatch, tuple[str, ...]], list[Mask]] = {}
        self._relevances: dict[tuple[ir.Bm25, tuple[str, ...]], list[Scores]] = {}
        self._queries: dict[ir.Nearest, Vector | None] = {}
        self._measured: dict[tuple[ir.Nearest, str], tuple[Numbers, Scores]] = {}
        """Distances that were computed last: entities, ascending, and the distance of each."""

    # For each row

    def values(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest, binding: Binding) -> pa.Array:
        """What a condition or rank says about the entities of a variable."""
        if isinstance(expr, ir.TextMatch):
            return pa.array(gather(binding, self._matching(expr, binding.spaces), False, np.bool_))
        scores = self._scores(expr, binding)
        return pa.array(scores, mask=np.isnan(scores))

    def _scores(self, expr: ir.Bm25 | ir.Nearest, binding: Binding) -> Scores:
        if isinstance(expr, ir.Bm25):
            return gather(binding, self._relevance(expr, binding.spaces), np.nan, np.float64)
        query = self._query(expr, binding)
        entities = Entities.of(binding)
        found = np.full(len(entities.binding.numbers), np.nan)
        for space, rows in parts(entities.binding):
            if query is not None and len(rows):
                found[rows] = self._distances(expr, query, space, entities.binding.numbers[rows])
        return entities.spread(found)

    def _distances(self, expr: ir.Nearest, query: Vector, space: Space, numbers: Numbers) -> Scores:
        """The distances of some entities, ascending by number: of the first of an order they are asked repeatedly."""
        key = (expr, space.key)
        if key in self._measured:
            known, far = self._measured[key]
            at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            if np.array_equal(known[at], numbers):
                return far[at]
        if self._is_streamed(space, expr.field.name, len(numbers)):
            found = streamed_distances(space, expr.field.name, query, expr.metric, numbers)
        else:
            vectors, places = self._vectors(space, expr.field.name, numbers)
            found = vectors.distances(query, expr.metric, places)
        self._measured[key] = (numbers, found)
        return found

    def _nearly(self, expr: ir.Bm25 | ir.Nearest, binding: Binding, count: int | None = None) -> Nearly:
        """About in which order entities stand by a rank; when a number is given, of who may be among the first."""
        self._context.budget.spend(len(binding.numbers), 2)
        if isinstance(expr, ir.Bm25):
            return Nearly(-self._scores(expr, binding), 0.0)
        query = self._query(expr, binding)
        found: list[tuple[Numbers, Nearly]] = []
        for space, rows in parts(binding):
            if query is not None and len(rows):
                if self._is_streamed(space, expr.field.name, len(rows)):
                    found.append((rows, Nearly(self._distances(expr, query, space, binding.numbers[rows]), 0.0)))
                    continue
                vectors, numbers = self._vectors(space, expr.field.name, binding.numbers[rows])
                nearly = vectors.nearly if count is None else partial(vectors.foremost, count=count)
                found.append((rows, nearly(query, expr.metric, numbers)))
        if len(found) == 1 and len(found[0][0]) == len(binding.numbers):
            return found[0][1]
        values = np.full(len(binding.numbers), np.nan)
        for rows, part in found:
            values[rows] = part.values
        return Nearly(values, max((part.doubt for _, part in found), default=0.0))

    # Words

    def _matching(self, expr: ir.TextMatch, spaces: tuple[Space, ...]) -> list[Mask]:
        key = (expr, tuple(space.key for space in spaces))
        if key not in self._matches:
            self._matches[key] = [self._match(expr, space) for space in spaces]
        return self._matches[key]

    def _match(self, expr: ir.TextMatch, space: Space) -> Mask:
        text = self._text(expr.query)
        if text is None:
            return np.zeros(space.slots, bool)
        analyzer = expr.analyzer
        if expr.mode is ir.TextMode.FUZZY:
            # Letters are those of the word that was written, not of what is left without its ending.
            analyzer = _unstemmed(analyzer)
        query, places = words_of(text, analyzer)
        if not query:
            return np.zeros(space.slots, bool)
        named = self._named_by_words(expr, space, text)
        if named is not None:
            return named
        words = self._words(space, expr.field.name, analyzer)
        match expr.mode:
            case ir.TextMode.ANY:
                return words.any_of(query)
            case ir.TextMode.ALL:
                return words.all_of(query)
            case ir.TextMode.PHRASE:
                return words.phrase(query, places)
        assert expr.edits is not None
        edits = self._number(expr.edits, "the edits of fuzzy are a number from 0 to 2", range(_MOST_EDITS + 1))
        return words.nearly(query, edits)

    def _named_by_words(self, expr: ir.TextMatch, space: Space, text: str) -> Mask | None:
        """What an index finds, while the words of a large table are not there: it has the same words."""
        name, phrase = expr.field.name, expr.mode is ir.TextMode.PHRASE
        label = _words_label(name, expr.analyzer)
        if expr.mode is ir.TextMode.FUZZY or space.count < _LARGE or space.has(label):
            return None
        specs = [text_index(name, expr.analyzer, positions=True)]
        if not phrase:
            specs.append(text_index(name, expr.analyzer, positions=False))
        if not any(map(space.covered_by, specs)) or not space.rents(label, space.count // _TURNS):
            return None
        found = np.zeros(space.slots, bool)
        found[space.matching(name, text, phrase=phrase, every_word=expr.mode is ir.TextMode.ALL)] = True
        return found

    def _relevance(self, expr: ir.Bm25, spaces: tuple[Space, ...]) -> list[Scores]:
        key = (expr, tuple(space.key for space in spaces))
        if key not in self._relevances:
            text = self._text(expr.query)
            words = [self._words(space, expr.field.name, expr.analyzer) for space in spaces]
            self._relevances[key] = relevance(words, [] if text is None else words_of(text, expr.analyzer)[0])
        return self._relevances[key]

    def _words(self, space: Space, name: str, analyzer: ir.Analyzer) -> Words:
        return space.kept(_words_label(name, analyzer), lambda: words_of_column(space, name, analyzer))

    def _text(self, expr: ir.Expr) -> str | None:
        text = _given(expr, self._context.request)
        assert text is None or isinstance(text, str)
        return text

    def _number(self, expr: ir.Const | ir.Param, rule: str, allowed: range) -> int:
        number = _given(expr, self._context.request)
        if not isinstance(number, int) or number not in allowed:
            assert isinstance(expr, ir.Param), "a literal was checked"
            raise ParameterError(expr.name, rule)
        return number

    # Vectors

    def _vectors(self, space: Space, name: str, numbers: Numbers) -> tuple[Vectors, Numbers]:
        """Vectors, and where those of some entities are among them. A few are read alone, unless all are there."""
        label = f"vectors of {name}"
        if space.has(label) or not self._are_few(space, name, len(numbers)):
            return space.derived(label, name, Vectors.of), numbers
        return Vectors.of(space.take(name, numbers)), np.arange(len(numbers))

    def _are_few(self, space: Space, name: str, count: int) -> bool:
        """Whether to read some vectors alone, once more. Who asks often enough gets all into memory, if they fit."""
        if count * _MANY > space.count:
            return False
        if not _all_fit(space, name):
            return True
        return space.rents(f"vectors of {name}", _MANY * count + space.count // _OFTEN)

    def _is_streamed(self, space: Space, name: str, count: int) -> bool:
        """Whether distances are computed while vectors are read: there are many, and memory has no room for all."""
        return not _all_fit(space, name) and not space.are_few(count)

    def _query(self, expr: ir.Nearest, binding: Binding) -> Vector | None:
        """The vector that is looked for; None when it is null."""
        if expr not in self._queries:
            self._embed({expr: [space.type_name for space in binding.spaces]})
        return self._queries[expr]

    def _embed(self, wanted: Mapping[ir.Nearest, Sequence[str]]) -> None:
        """Find the vectors that are looked for in properties of some types; all texts are embedded together."""
        sought: dict[ir.Nearest, Sought] = {}
        for expr, types in wanted.items():
            given = _given(expr.query, self._context.request)
            if isinstance(given, str) and types:
                target = self._context.accepted.catalog.nodes[types[0]].properties[expr.field.name]
                sought[expr] = Sought(given, target, types[0])
            else:
                known = given is not None and not isinstance(given, str)
                self._queries[expr] = np.array(given, np.float32) if known else None
        if sought:
            embedder = self._context.embedder
            assert embedder is not None, "this read was given nothing to embed texts with"
            texts = list(sought.values())
            vectors = waited_for(lambda: embed_queries(embedder(), texts))
            self._queries |= zip(sought, vectors, strict=True)

    # The order of a read

    def prepare(self, read: ir.Read) -> None:
        """Embed the texts of a read, before anything else is done."""
        wanted = [part for part in ranks(read) if isinstance(part, ir.Nearest) and part not in self._queries]
        if wanted:
            types = {node.name: node.types for node in _nodes(read.match)}
            self._embed({part: types[part.field.var] for part in wanted})

    def go_on_from(self, other: Search) -> None:
        """Take over what another has prepared for the same read."""
        self._queries |= other._queries

    def fuse(self, read: ir.Read, frame: Frame, first: ir.Rank | None = None, count: int | None = None) -> Frame:
        """The rows of a whole match, with what fusions say about them: that depends on which entities are left.

        Args:
            read: the read.
            frame: the rows.
            first: the rank that comes first in the order. If that is a fusion, rows that are certainly not among the
                best `count` are left out.
            count: how many rows are wanted.
        """
        if frame.fused:
            return frame  # These are not all rows; what is known of them comes from all.
        fusions = {part for part in ranks(read) if isinstance(part, ir.Fusion)}
        found = {fusion: self._fused(fusion, frame, count if fusion == first else None) for fusion in fusions}
        if isinstance(first, ir.Fusion) and count is not None:
            fused, back = found[first]
            rows = np.flatnonzero(fused.place != NOTHING if back is None else (fused.place != NOTHING)[back])
            if count <= len(rows) < frame.count:
                # The others are certainly not among the best.
                found = {fusion: (some, rows if of is None else of[rows]) for fusion, (some, of) in found.items()}
                frame = frame.take(rows)
        return frame.with_fused({fusion: some if of is None else some.take(of) for fusion, (some, of) in found.items()})

    def _fused(self, expr: ir.Fusion, frame: Frame, count: int | None) -> tuple[Fused, Numbers | None]:
        """What a fusion gives to entities, and the entity of each row; None when the rows are the entities."""
        k = self._number(expr.k, "k of rrf is a whole number above zero", range(1, 2**63))
        entities = Entities.of(frame.bindings[ranked_variable(expr)])
        arms = [self._arm(arm, entities.binding) for arm in expr.arms]
        found = fused(arms, k, lambda chosen: by_id(entities.binding.take(chosen)), count)
        return found, entities.back

    def _arm(self, arm: ir.Arm, binding: Binding) -> ArmValues:
        def exact(chosen: Numbers) -> Scores:
            scores = self._scores(arm.rank, binding.take(chosen))
            return scores if isinstance(arm.rank, ir.Nearest) else -scores

        return ArmValues(self._nearly(arm.rank, binding), exact, arm.weight)

    def best(self, rank: ir.Rank, frame: Frame, count: int | None) -> Frame:
        """The rows that have a rank, without those that certainly do not belong to the best `count` of them."""
        if isinstance(rank, ir.Fusion):
            score = frame.fused[rank].score
            order = Nearly(-score, 0.0)
            return frame.filter(order.contenders(len(score) if count is None else count))
        entities = Entities.of(frame.bindings[ranked_variable(rank)])
        named = self._named(rank, entities.binding, count)
        if named is not None:
            return frame.filter(entities.spread(named))
        order = self._nearly(rank, entities.binding, count)
        kept = order.contenders(len(order.values) if count is None else count)
        if order.doubt:
            kept[kept] = ~np.isnan(self._scores(rank, entities.binding.take(np.flatnonzero(kept))))
        return frame.filter(entities.spread(kept))

    def _named(self, rank: ir.Bm25 | ir.Nearest, binding: Binding, count: int | None) -> Mask | None:
        """The entities that an index names as the nearest, where there are too many to look at each."""
        if not isinstance(rank, ir.Nearest) or binding.which is not None or count is None:
            return None
        query, (space,) = self._query(rank, binding), binding.spaces
        if query is None or len(binding.numbers) * _MANY <= space.count:
            return None
        return named_by_index(space, rank, query, binding.numbers, count)


@remembered
def ranks(read: ir.Read) -> tuple[ir.Rank, ...]:
    """What a read ranks by, as columns and orders."""
    parts = walk((read.columns, read.order))
    return tuple(part for part in parts if isinstance(part, ir.Nearest | ir.Bm25 | ir.Fusion))


@remembered
def first_rank(read: ir.Read) -> ir.Rank | None:
    """The rank by which rows are ordered first, the best before others and those without one last."""
    if not read.order:
        return None
    key, columns = read.order[0], {column.name: column.expr for column in read.columns}
    expr = key.expr
    while isinstance(expr, ir.Column):
        expr = columns[expr.name]
    if not isinstance(expr, ir.Nearest | ir.Bm25 | ir.Fusion) or key.nulls_first:
        return None
    return expr if key.descending is not isinstance(expr, ir.Nearest) else None


def _given(expr: ir.Expr, request: Request) -> ir.ConstValue:
    """What is looked for, as it was written or given."""
    if isinstance(expr, ir.Const):
        return expr.value
    assert isinstance(expr, ir.Param), "a query is a literal or a parameter"
    return request.params[expr.name]


def _all_fit(space: Space, name: str) -> bool:
    """Whether all vectors of a property can stay in memory."""
    return space.fits(4 * space.count * int(space.schema.field(name).type.list_size))


def _words_label(name: str, analyzer: ir.Analyzer) -> str:
    return f"words of {name} by {analyzer}"


def ranked_variable(rank: ir.Rank) -> str:
    """The variable whose entities are ranked."""
    return (rank.arms[0].rank if isinstance(rank, ir.Fusion) else rank).field.var


def _unstemmed(analyzer: ir.Analyzer) -> ir.Analyzer:
    return replace(analyzer, stem=False)


def _nodes(block: ir.Block) -> Iterator[ir.NodeVar]:
    yield from block.nodes
    for optional in block.optionals:
        yield from _nodes(optional)
