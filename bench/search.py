"""What searching costs: vectors, words, both at once, and both within a graph, beside lancedb on the same documents.

lancedb has its best indexes: once IVF_PQ, whose first finds are compared again by their real distances, and once
IVF_HNSW_SQ; full text without positions, and B-trees on everything that is filtered by. It has no joins, so a search
within a graph is a search and a lookup there, joined by the caller. Ours finds the exact nearest, and needs no index.

Every sample asks all questions once. Beside the time that passes, the time that processors spent is printed: on a busy
machine that tells more. What is found is compared with what is exact: the share of the true ten nearest
that is found is the recall. A wrong answer of ours stops the benchmark.

Flags: `--documents N`, `--only TEXT` for the cases whose names have a text, and `--place DIR` to keep documents, graph
and database for the next run: building lancedb's indexes takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import omnigraph
from harness import QUICK_ROUNDS, Benchmark, Comparison, Timing, duration
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from searching.cases import LIMIT, Case, cases
from searching.data import CITED, SCHEMA, read_file, write_files

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / ".venv-bench" / "bin" / "python"
FULL = 100_000
"""The size that the goals for time are set for."""

ROUNDS = 15
METHODS = ("ivf_pq", "ivf_hnsw_sq")
RECALL = 0.99

Values = npt.NDArray[np.float64]
Found = list[list[str]]
"""What each question finds."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What all questions found, the seconds that passed, and those that processors spent."""

    found: Found
    seconds: float
    used: float


Ask = Callable[[], Answers]


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, help="how many documents there are")
    parser.add_argument("--only", default="", help="only the cases whose names have this text")
    parser.add_argument("--place", type=Path, help="keep what is built in this folder, for the next run")


def main(argv: list[str] | None = None) -> None:
    bench = Benchmark("search", argv, flags)
    os.environ[FSYNC.name] = "0"
    documents = bench.options.documents or (2_000 if bench.quick else FULL)
    root = bench.options.place or Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        with ExitStack() as stack:
            files = root / f"files-{documents}"
            if not files.exists():
                write_files(files, documents)
            ours = stack.enter_context(Ours(files, root / f"graph-{documents}"))
            peer = Peer.start(files, root / f"lancedb-{documents}")
            if peer is not None:
                stack.enter_context(peer)
            for case in cases():
                if bench.options.only in case.name:
                    compare(bench, case, ours, peer, full=documents >= FULL)
    finally:
        if bench.options.place is None:
            shutil.rmtree(root)
    bench.finish()


def compare(bench: Benchmark, case: Case, ours: Ours, peer: Peer | None, *, full: bool) -> None:
    contenders: dict[str, Ask] = {"ours": lambda: ours.answer(case)}
    if peer is not None:
        methods = METHODS if case.kind != "words" else METHODS[:1]
        contenders |= {_name(method, case): _asks(peer, case, method) for method in methods}
    timings, used, found = race(contenders, rounds=QUICK_ROUNDS if bench.quick else ROUNDS)
    result = bench.add(Comparison(case.name, timings.pop("ours"), timings))
    print("  processors: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in used.items()))
    exact = ours.exact(case)
    recalls = {name: recall(answer, exact) for name, answer in found.items()}
    print("  " + ", ".join(f"{name} finds {share:.1%}" for name, share in recalls.items()))
    if found["ours"] != exact:
        raise SystemExit(f"{case.name}: ours is not what is exact")
    bench.goal(f"{case.name}: recall", recalls["ours"], RECALL, at_least=True)
    if full and result.peers:
        best = min(result.peers, key=lambda name: result.peers[name].median)
        limit = 1.3 if case.kind == "words" else 1.0
        bench.goal(f"{case.name}: against {best}", 1 / result.speedup(best), limit, unit="×")


def _name(method: str, case: Case) -> str:
    return "lancedb" if case.kind == "words" else f"lancedb {method.upper()}"


def _asks(peer: Peer, case: Case, method: str) -> Ask:
    return lambda: peer.answer(case, method)


def race(contenders: Mapping[str, Ask], rounds: int) -> tuple[dict[str, Timing], dict[str, float], dict[str, Found]]:
    """Each contender once a round, in turns, after a round that does not count.

    Returns:
        The timings of one question; the median of what processors spent on it; and what was found.
    """
    taken: dict[str, list[Answers]] = {name: [] for name in contenders}
    found: dict[str, Found] = {name: ask().found for name, ask in contenders.items()}
    names = list(contenders)
    for round_ in range(rounds):
        first = round_ % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(contenders[name]())
    timings, used = {}, {}
    for name, answers in taken.items():
        count = len(found[name])
        timings[name] = Timing(name, tuple(answer.seconds / count for answer in answers))
        used[name] = statistics.median(answer.used / count for answer in answers)
    return timings, used, found


def recall(found: Found, exact: Found) -> float:
    """Which share of what should be found is found."""
    hits = sum(len(set(mine) & set(true)) for mine, true in zip(found, exact, strict=True))
    return hits / sum(len(set(true)) for true in exact)


# Ours


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and which of the values of a question are its parameters."""

    text: str
    parameters: Mapping[str, str]


def asked(case: Case) -> Asked:
    dimension = case.vector.removeprefix("v")
    near, words = f"nearest($d.{case.vector}, $vector)", "bm25($d.text, $text)"
    kept = "" if case.keeps == 100 else f"$d.bucket < {case.keeps}"
    declared = {
        "vector": (f"$vector: Vector({dimension})", case.vector),
        "text": ("$text: String", "text"),
        "topic": ("$topic: String", "topic"),
    }
    match, columns, order, limit, names = {
        "vector": (kept, f"$d.slug as slug, {near} as far", near, LIMIT, ["vector"]),
        "words": (kept, f"$d.slug as slug, {words} as score", words, LIMIT, ["text"]),
        "hybrid": ("", "$d.slug as slug", f"rrf({near}, {words})", LIMIT, ["vector", "text"]),
        "topic": (
            "$t: Topic { slug: $topic } $d about $t",
            "$d.slug as slug",
            f"rrf({near}, {words})",
            LIMIT,
            ["vector", "text", "topic"],
        ),
        "cited": (
            "$e: Doc $d cites $e",
            "$d.slug as slug, $e.slug as cited",
            f"rrf({near}, {words})",
            LIMIT * CITED,
            ["vector", "text"],
        ),
    }[case.kind]
    given = ", ".join(declared[name][0] for name in names)
    text = (
        f"query q({given}) {{ match {{ $d: Doc {match} }} return {{ {columns} }} order {{ {order} }} limit {limit} }}"
    )
    return Asked(text, {name: declared[name][1] for name in names})


class Ours:
    """The documents as a graph."""

    def __init__(self, files: Path, place: Path) -> None:
        if place.exists():
            self.graph: Graph = omnigraph.open(place)
        else:
            self.graph = omnigraph.init(place, SCHEMA)
            tables = {name: read_file(files, name) for name in ("Doc", "Topic", "About", "Cites")}
            self.graph.load(tables, mode="append")
        self._questions = read_file(files, "questions").to_pylist()
        self._truth = Truth(files, self.graph)

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self.graph.close()

    def answer(self, case: Case) -> Answers:
        query = asked(case)
        start, used = time.perf_counter(), time.process_time()
        tables = [self._ask(query, question) for question in self._questions]
        seconds, used = time.perf_counter() - start, time.process_time() - used
        return Answers([table["slug"].to_pylist() for table in tables], seconds, used)

    def _ask(self, query: Asked, question: Mapping[str, Any]) -> pa.Table:
        given = {name: question[column] for name, column in query.parameters.items()}
        return self.graph.query(query.text, given).to_arrow()

    def exact(self, case: Case) -> Found:
        return [self._truth.of(case, question) for question in self._questions]


class Truth:
    """What is exact: every distance in double precision, every place counted; relevance as the graph has it."""

    def __init__(self, files: Path, graph: Graph) -> None:
        docs = read_file(files, "Doc")
        self._slugs = np.array(docs["slug"].to_pylist(), object)
        self._bucket = docs["bucket"].to_numpy()
        self._vectors = {
            name: docs[name].combine_chunks().flatten().to_numpy().reshape(len(docs), -1) for name in ("v128", "v384")
        }
        about = read_file(files, "About")
        self._topics = dict(zip(about["from"].to_pylist(), about["to"].to_pylist(), strict=True))
        self._graph = graph

    def of(self, case: Case, question: Mapping[str, Any]) -> list[str]:
        kept = self._bucket < case.keeps
        if case.kind == "topic":
            kept = np.array([self._topics[slug] == question["topic"] for slug in self._slugs])
        if case.kind == "words":
            return self._first(self._relevance(question["text"]), kept)
        far = self._far(case.vector, question[case.vector])
        if case.kind == "vector":
            return self._first(far, kept)
        best = self._fused(far, self._relevance(question["text"]), kept)
        return [slug for slug in best for _ in range(CITED)] if case.kind == "cited" else best

    def _fused(self, far: Values, relevance: Values, kept: npt.NDArray[np.bool_]) -> list[str]:
        """The first of a fusion among those that are kept; equal ones by their places in the arms."""
        orders = [self._in_order(values, kept) for values in (far, relevance)]
        worth, places = np.zeros(len(kept)), np.full((2, len(kept)), len(kept))
        for number, order in enumerate(orders):
            places[number, order] = np.arange(len(order))
            worth[order] += 1 / (60 + np.arange(len(order)) + 1.0)
        best = np.lexsort((places[1], places[0], -worth))
        return list(self._slugs[best[: min(LIMIT, np.count_nonzero(worth))]])

    def _far(self, name: str, vector: list[float]) -> Values:
        wide = self._vectors[name].astype(np.float64)
        far: Values = np.sqrt(np.square(wide - np.array(vector, np.float32).astype(np.float64)).sum(axis=1))
        return far.astype(np.float32).astype(np.float64)

    def _relevance(self, text: str) -> Values:
        """Smaller is more relevant; NaN where no word occurs."""
        found = self._graph.query(
            "query q($text: String) { match { $d: Doc search($d.text, $text) }"
            " return { $d.slug as slug, bm25($d.text, $text) as score } }",
            {"text": text},
        ).to_arrow()
        places = {slug: place for place, slug in enumerate(self._slugs)}
        scores = np.full(len(self._slugs), np.nan)
        scores[[places[slug] for slug in found["slug"].to_pylist()]] = -found["score"].to_numpy()
        return scores

    def _first(self, values: Values, kept: npt.NDArray[np.bool_]) -> list[str]:
        return list(self._slugs[self._in_order(values, kept)[:LIMIT]])

    def _in_order(self, values: Values, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The documents that are kept and have a value, the smallest first; those with equal ones by name."""
        chosen = np.flatnonzero(kept & ~np.isnan(values))
        chosen = chosen[np.argsort(self._slugs[chosen], kind="stable")]
        found: npt.NDArray[np.int64] = chosen[np.argsort(values[chosen], kind="stable")]
        return found


# lancedb


class Peer:
    """lancedb in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], version: str) -> None:
        self._process = process
        print(f"beside lancedb {version}")

    @classmethod
    def start(cls, files: Path, place: Path) -> Peer | None:
        """None where it is not installed."""
        try:
            subprocess.run([str(PYTHON), "-c", "import lancedb"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            print("\nlancedb is not installed (make bench does it, where there is a network): not compared with it")
            return None
        command = [str(PYTHON), str(HERE / "searching" / "lancedb_worker.py"), str(files), str(place)]
        quiet = {**os.environ, "LANCE_LOG": "error", "LANCEDB_LOG": "error"}
        process = subprocess.Popen(command, env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(process, json.loads(process.stdout.readline())["version"])

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def answer(self, case: Case, method: str) -> Answers:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"case": asdict(case), "method": method}), file=self._process.stdin, flush=True)
        return Answers(**json.loads(self._process.stdout.readline()))


if __name__ == "__main__":
    main()
