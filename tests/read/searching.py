"""A small library of documents, the reads of a test, and a plain search over one text and one vector at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import omnigraph
from omnigraph.commit.snapshots import Snapshot
from omnigraph.embed import Embedder
from omnigraph.evaluate import Request, bind
from omnigraph.graph import Graph
from omnigraph.lang.query import ir
from omnigraph.lang.query.compile import compile_query
from omnigraph.read.budget import Spending
from omnigraph.read.columns.cache import ColumnCache
from omnigraph.read.columns.entity_table import EntityTables
from omnigraph.read.context import Context
from omnigraph.read.execute.run import run
from omnigraph.read.query.read_query import ReadQuery
from omnigraph.read.topology.topologies import Topologies

DIMENSION = 3
USUAL = ir.Analyzer()
CACHE = ColumnCache()

SCHEMA = """
interface Written { title: String }
node Doc implements Written {
    slug: String @key
    text: String?
    near: Vector(3)?
    angle: Vector(3)?
    inner: Vector(3)?
    told: Vector(3)? @embed("text", model="mock-small")
    year: I64?
    @index(text, kind="fts")
    @index(title, kind="fts", stem=false, stop_words=false)
    @index(angle, kind="vector", metric="cosine")
    @index(inner, kind="vector", metric="dot")
}
node Note implements Written {
    slug: String @key
    @index(title, kind="fts", stem=false, stop_words=false)
}
node Topic { slug: String @key }
edge About: Doc -> Topic
edge Cites: Doc -> Doc
"""

WORDS = (
    *("the", "of", "a", "graph", "graphs", "graphing", "engine", "engines", "quick", "Quickly", "fox", "state", "art"),
    *("naïve", "naive", "café", "running", "ran", "run", "databases", "database", "join", "joins", "cost", "Straße"),
)
PHRASES = ("state of the art", "state art", "quick fox", "graphs of engines", "a database engine")
BETWEEN = (" ", ", ", " - ", "\n", "; ")


def library(place: Path, *, docs: int = 60, seed: int = 0) -> Graph:
    """A graph of documents with few distinct words and vectors (for ties), nulls, topics and citations."""
    random = Random(seed)
    graph = omnigraph.init(place / "library", SCHEMA)
    graph.load(
        {
            "Doc": pa.table(document_columns(random, [f"d{number:03}" for number in range(docs)])),
            "Note": pa.table({"slug": ["d001", "n1", "n2"], "title": ["quick fox", "the fox", "a graph of cost"]}),
            "Topic": pa.table({"slug": ["t0", "t1", "t2"]}),
            "About": pa.table(_edges(random, docs, [f"t{n}" for n in range(3)], docs)),
            "Cites": pa.table(_edges(random, docs, [f"d{n:03}" for n in range(docs)], 2 * docs)),
        },
        mode="append",
        embed=False,
    )
    return graph


def document_columns(random: Random, slugs: Sequence[str]) -> dict[str, pa.Array]:
    def sentence(most: int) -> str:
        return random.choice(BETWEEN).join(random.choices((*WORDS, *PHRASES), k=random.randrange(most)))

    def vector() -> list[float] | None:
        return None if random.random() < 0.15 else [random.randrange(-2, 3) / 2 for _ in range(DIMENSION)]

    kind = pa.list_(pa.float32(), DIMENSION)
    count = len(slugs)
    return {
        "slug": pa.array(slugs),
        "title": pa.array([sentence(5) for _ in range(count)]),
        "text": pa.array([None if random.random() < 0.1 else sentence(12) for _ in range(count)]),
        "near": pa.array([vector() for _ in range(count)], kind),
        "angle": pa.array([vector() for _ in range(count)], kind),
        "inner": pa.array([vector() for _ in range(count)], kind),
        "told": pa.array([vector() for _ in range(count)], kind),
        "year": pa.array([random.choice([None, 2000, 2001, 2002]) for _ in range(count)], pa.int64()),
    }


def _edges(random: Random, docs: int, targets: Sequence[str], count: int) -> dict[str, list[str]]:
    return {
        "from": [f"d{random.randrange(docs):03}" for _ in range(count)],
        "to": [random.choice(targets) for _ in range(count)],
    }


def read(
    graph: Graph,
    text: str,
    params: Mapping[str, object] | None = None,
    *,
    at: Snapshot | None = None,
    embedder: Embedder | None = None,
    cache: ColumnCache = CACHE,
) -> list[dict[str, Any]]:
    """Return the rows of a query `q`, given without its frame: `($x: I64) match { … } return { … }`."""
    head, brace, rest = text.partition("match")
    query = compile_query(f"query q{head.strip() or '()'} {{ {brace}{rest} }}", graph.catalog, None)
    assert isinstance(query.body, ir.Read)
    snapshot = at or graph.snapshot()
    spaces = EntityTables(snapshot, cache)
    request = Request(bind(query.params, params or {}), 0)
    topologies = Topologies(spaces, graph.catalog)
    found = (lambda: embedder) if embedder is not None else None
    context = Context(snapshot, graph.accepted_schema, request, spaces, lambda: topologies, Spending(), found)
    rows: list[dict[str, Any]] = run(ReadQuery(query.body), context).to_pylist()
    return rows


def rows_of(graph: Graph, name: str, at: Snapshot | None = None) -> dict[str, dict[str, Any]]:
    """The nodes of a type by id, sorted by id."""
    rows = (at or graph.snapshot()).scan(f"node:{name}").to_pylist()
    return {row["id"]: row for row in sorted(rows, key=lambda row: str(row["id"]))}


# Plain search


def words(text: str | None, analyzer: ir.Analyzer = USUAL) -> list[tuple[str, int]]:
    """The words of one text with their positions."""
    if text is None:
        return []
    settings: dict[str, Any] = {
        "base_tokenizer": analyzer.tokenizer,
        "language": analyzer.language.title(),
        "stem": analyzer.stem,
        "remove_stop_words": analyzer.stop_words,
        "lower_case": analyzer.lower_case,
        "ascii_folding": analyzer.ascii_folding,
    }
    return [(token.text, token.position) for token in lance.tokenize(text, max_token_length=None, **settings)]


def has_any(text: str | None, query: str, analyzer: ir.Analyzer = USUAL) -> bool:
    return bool({word for word, _ in words(text, analyzer)} & {word for word, _ in words(query, analyzer)})


def has_all(text: str | None, query: str, analyzer: ir.Analyzer = USUAL) -> bool:
    wanted = {word for word, _ in words(query, analyzer)}
    return bool(wanted) and wanted <= {word for word, _ in words(text, analyzer)}


def has_phrase(text: str | None, query: str, analyzer: ir.Analyzer = USUAL) -> bool:
    stand, wanted = set(words(text, analyzer)), words(query, analyzer)
    starts = {place for _, place in stand}
    return bool(wanted) and any(all((word, start + place) in stand for word, place in wanted) for start in starts)


def has_nearly(text: str | None, query: str, edits: int) -> bool:
    plain = ir.Analyzer(stem=False)
    return any(distance(word, other) <= edits for word, _ in words(text, plain) for other, _ in words(query, plain))


def distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        above, row = row, [i]
        for j, other in enumerate(right):
            row.append(min(above[j + 1] + 1, row[j] + 1, above[j] + (letter != other)))
    return row[-1]


def bm25(texts: Mapping[str, str | None], query: str, analyzer: ir.Analyzer = USUAL) -> dict[str, float]:
    """The BM25 score of each text that contains a word of the query."""
    found = {key: [word for word, _ in words(text, analyzer)] for key, text in texts.items() if text is not None}
    count, total = len(found), sum(map(len, found.values()))
    scores: dict[str, float] = {}
    for wanted, _ in words(query, analyzer):
        having = sum(wanted in text for text in found.values())
        weight = math.log(1 + (count - having + 0.5) / (having + 0.5))
        for key, text in found.items():
            often = text.count(wanted)
            if often:
                rest = 1.2 * (1 - 0.75 + 0.75 * len(text) / (total / count))
                scores[key] = scores.get(key, 0.0) + weight * often * 2.2 / (often + rest)
    return {key: single(score) for key, score in scores.items()}


def single(number: float) -> float:
    """A number in single precision, or None if it does not fit."""
    return number if abs(number) >= float(np.finfo(np.float32).max) else float(np.float32(number))


def distances(vectors: Mapping[str, Sequence[float] | None], query: Sequence[float], metric: str) -> dict[str, float]:
    """The distance of each vector that is not null."""
    wanted = [single(x) for x in query]
    found = {}
    for key, vector in vectors.items():
        if vector is None:
            continue
        product = math.fsum(x * y for x, y in zip(vector, wanted, strict=True))
        length = math.sqrt(math.fsum(x * x for x in vector)) * math.sqrt(math.fsum(y * y for y in wanted))
        if metric == "l2":
            found[key] = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(vector, wanted, strict=True)))
        elif metric == "dot":
            found[key] = 1 - product
        elif length:
            found[key] = 1 - product / length
    return {key: single(far) for key, far in found.items()}


def fused(arms: Sequence[tuple[Mapping[str, float], bool, float]], k: int) -> list[tuple[str, float]]:
    """The ranking of a fusion, best first. An arm has values, a flag for descending order, and a weight."""
    orders = []
    for values, descending, _ in arms:
        ranked = sorted(values, key=lambda key: (-values[key] if descending else values[key], key))
        orders.append({key: place for place, key in enumerate(ranked)})
    scores: dict[str, list[float]] = {}
    for (_, _, weight), order in zip(arms, orders, strict=True):
        for key, place in order.items():
            scores.setdefault(key, []).append(weight / (k + place + 1))
    sums = {key: sum(sorted(parts)) for key, parts in scores.items()}
    missing = len(scores)
    order_of = sorted(sums, key=lambda key: (-sums[key], [order.get(key, missing) for order in orders]))
    return [(key, sums[key]) for key in order_of]
