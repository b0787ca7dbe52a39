"""The same documents in lancedb: `.venv-bench/bin/python bench/searching/lancedb_worker.py FILES PLACE`.

Answers requests on its standard input, a line of JSON each: a case, and the index to use. The answer has the seconds
that all questions took together, and what was found.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import lancedb
import pyarrow as pa
from lancedb.index import FTS, BTree, HnswSq, IvfPq
from lancedb.rerankers import RRFReranker

from searching.cases import LIMIT
from searching.data import CITED, DIMENSIONS, read_file

METHODS = {"ivf_pq": IvfPq, "ivf_hnsw_sq": HnswSq}
DONE = "built"
"""A file that is there when everything is built."""

REFINE = 10
"""How many times as many as are wanted product quantization is asked for: without it, it misses most of them."""


class Peer:
    """The documents as tables, one for each kind of vector index."""

    def __init__(self, files: Path, place: Path) -> None:
        if not (place / DONE).exists():
            build(files, place)
        database = lancedb.connect(place)
        self._docs = {method: database.open_table(method) for method in METHODS}
        self._cites, self._about = database.open_table("cites"), database.open_table("about")
        self._questions = read_file(files, "questions").to_pylist()

    def answer(self, case: dict[str, Any], method: str) -> dict[str, Any]:
        ask = getattr(self, f"_{case['kind']}")
        start, used = time.perf_counter(), time.process_time()
        tables = [ask(self._docs[method], method, case, question) for question in self._questions]
        seconds, used = time.perf_counter() - start, time.process_time() - used
        return {"seconds": seconds, "used": used, "found": [table["slug"].to_pylist() for table in tables]}

    def _vector(self, docs: Any, method: str, case: dict[str, Any], question: dict[str, Any]) -> pa.Table:
        found = docs.search(question[case["vector"]], vector_column_name=case["vector"])
        if method == "ivf_pq":
            found = found.refine_factor(REFINE)
        if case["keeps"] < 100:
            found = found.where(f"bucket < {case['keeps']}", prefilter=True)
        return found.select(["slug", "_distance"]).limit(LIMIT).to_arrow()

    def _words(self, docs: Any, method: str, case: dict[str, Any], question: dict[str, Any]) -> pa.Table:
        found = docs.search(question["text"], query_type="fts", fts_columns="text")
        if case["keeps"] < 100:
            found = found.where(f"bucket < {case['keeps']}", prefilter=True)
        return found.select(["slug", "_score"]).limit(LIMIT).to_arrow()

    def _hybrid(
        self, docs: Any, method: str, case: dict[str, Any], question: dict[str, Any], where: str | None = None
    ) -> pa.Table:
        found = docs.search(query_type="hybrid", vector_column_name=case["vector"], fts_columns="text")
        found = found.vector(question[case["vector"]]).text(question["text"]).rerank(RRFReranker())
        if method == "ivf_pq":
            found = found.refine_factor(REFINE)
        if where is not None:
            found = found.where(where, prefilter=True)
        return found.select(["slug"]).limit(LIMIT).to_arrow()

    def _topic(self, docs: Any, method: str, case: dict[str, Any], question: dict[str, Any]) -> pa.Table:
        """What is about the topic is asked first, and then filtered by."""
        topic = question["topic"]
        about = self._about.search().where(f"`to` = '{topic}'").select(["from"]).limit(None).to_arrow()
        names = ", ".join(f"'{slug}'" for slug in about["from"].to_pylist())
        return self._hybrid(docs, method, case, question, f"slug IN ({names})")

    def _cited(self, docs: Any, method: str, case: dict[str, Any], question: dict[str, Any]) -> pa.Table:
        """What the documents cite is asked afterwards, and joined."""
        first = self._hybrid(docs, method, case, question).select(["slug"])
        names = ", ".join(f"'{slug}'" for slug in first["slug"].to_pylist())
        cites = self._cites.search().where(f"`from` IN ({names})").select(["from", "to"]).limit(None).to_arrow()
        places = pa.table({"slug": first["slug"], "place": pa.array(range(len(first)))})
        joined = places.join(cites, "slug", "from", join_type="inner").sort_by([("place", "ascending")])
        return joined.slice(0, LIMIT * CITED)


def build(files: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    database = lancedb.connect(place)
    docs = read_file(files, "Doc")
    for method, config in METHODS.items():
        table = database.create_table(method, docs)
        table.create_index("bucket", config=BTree())
        table.create_index("slug", config=BTree())
        words = FTS(with_position=False, stem=True, remove_stop_words=True, ascii_folding=True)
        table.create_index("text", config=words)
        for dimension in DIMENSIONS:
            table.create_index(f"v{dimension}", config=config(distance_type="l2"))
        table.optimize()
    for name, column in (("Cites", "from"), ("About", "to")):
        database.create_table(name.lower(), read_file(files, name)).create_index(column, config=BTree())
    (place / DONE).touch()


def main() -> None:
    peer = Peer(Path(sys.argv[1]), Path(sys.argv[2]))
    print(json.dumps({"version": lancedb.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.answer(**json.loads(line))), flush=True)


main()
