"""How long it takes to compile queries: parse, check against a schema, and lower to the IR.

The peer is Python's own `ast.parse` on Python text of the same length. It is written in C and only parses, so it is
the yardstick for "instant" rather than a rival.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from harness import Benchmark
from omnigraph.lang.query import compile_queries, compile_query, format_queries, lint_queries
from omnigraph.lang.schema import compile_schema

PAPERS = Path(__file__).resolve().parent.parent / "examples" / "papers"

QUERY = """\
query collaborators($orcid: String, $since: Date, $n: I64 = 20) {
    match {
        $a: Author { orcid: $orcid }
        $a wrote $p
        $p.published >= $since and $p.status = "published"
        $other wrote $p
        not { $a advises $other }
    }
    return { $other.name as name, count(distinct $p) as papers, max($p.published) as latest }
    order { papers desc, name }
    limit $n
}
"""

PYTHON = """\
def collaborators(graph, orcid, since, limit=20):
    found = {}
    for paper in graph.papers_of(orcid):
        if paper.published >= since and paper.status == "published":
            for other in paper.authors:
                if other.orcid != orcid and not graph.advises(orcid, other):
                    entry = found.setdefault(other.name, [0, paper.published])
                    entry[0] += 1
                    entry[1] = max(entry[1], paper.published)
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    return [(name, count, latest) for name, (count, latest) in ranked[:limit]]
"""

FILE_OF = 300


def query_file() -> str:
    """300 different queries: those of the example, over and over under new names."""
    texts = (PAPERS / "queries.gq").read_text(encoding="utf-8"), (PAPERS / "mutations.gq").read_text(encoding="utf-8")
    queries = [part for text in texts for part in re.split(r"(?m)^(?=query )", text) if part.startswith("query ")]
    renamed = (re.sub(r"^query (\w+)", rf"query \1_{i}", queries[i % len(queries)], count=1) for i in range(FILE_OF))
    return "\n".join(renamed)


def python_text(length: int) -> str:
    """Python source of about this many characters."""
    copies = max(1, round(length / len(PYTHON)))
    return "\n\n".join(PYTHON.replace("collaborators", f"collaborators_{i}") for i in range(copies))


def main() -> None:
    bench = Benchmark("lang")
    schema = (PAPERS / "schema.pg").read_text(encoding="utf-8")
    catalog = compile_schema(schema)
    many = query_file()
    python_one, python_many = python_text(len(QUERY)), python_text(len(many))
    assert len(QUERY.splitlines()) == 12
    assert len(compile_queries(many, catalog)) == FILE_OF

    one = bench.compare(
        "a query of 12 lines: parse, check, lower",
        ours=lambda: compile_query(QUERY, catalog),
        peers={"ast.parse, same length": lambda: ast.parse(python_one)},
    )
    whole = bench.compare(
        f"a file of {FILE_OF} queries, {len(many):,} characters: parse, check, lower",
        ours=lambda: compile_queries(many, catalog),
        peers={"ast.parse, same length": lambda: ast.parse(python_many)},
    )
    bench.compare(f"lint of the {FILE_OF} queries", ours=lambda: lint_queries(many, catalog), rounds=5)
    bench.compare(f"format of the {FILE_OF} queries", ours=lambda: format_queries(many), rounds=5)
    bench.compare("the example schema: parse, expand, check", ours=lambda: compile_schema(schema))

    bench.goal("query of 12 lines", one.ours.median * 1e3, limit=1, unit="ms")
    bench.goal(f"file of {FILE_OF} queries", whole.ours.median * 1e3, limit=300, unit="ms")
    bench.finish()


if __name__ == "__main__":
    main()
