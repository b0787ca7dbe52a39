"""Changes of a graph: diffs, the change feed, merges, schema changes and many commits.

    python bench/change.py [diff] [feed] [schema] [merge] [commits] [--rows N]

Without a part, all of them run. The first four share a small and a large table with the same changes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from changing.commits import many_commits
from changing.data import Table, changed_table
from changing.merging import merges
from changing.reading import diffs, feeds
from changing.schemas import schemas
from harness import Benchmark

SMALL, LARGE = 1_000_000, 10_000_000
QUICK_SMALL, QUICK_LARGE = 20_000, 200_000
CHANGED, QUICK_CHANGED = (100, 10_000, 1_000_000), (100, 1_000, 10_000)
PARTS = ("diff", "feed", "schema", "merge", "commits")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"the parts to run: {', '.join(PARTS)}; default: all")
    parser.add_argument("--rows", type=int, help="how many rows the large table has")


def changed_tables(bench: Benchmark, root: Path) -> tuple[Table, Table]:
    """The small table and the large one."""
    small = QUICK_SMALL if bench.quick else SMALL
    large = bench.options.rows or (QUICK_LARGE if bench.quick else LARGE)
    changed = QUICK_CHANGED if bench.quick else CHANGED
    return changed_table(root / "small", small, changed), changed_table(root / "large", large, changed)


def run(bench: Benchmark, parts: Sequence[str], root: Path) -> None:
    if set(parts) - {"commits"}:
        tables = changed_tables(bench, root)
        if "diff" in parts:
            diffs(bench, tables)
        if "feed" in parts:
            feeds(bench, tables)
        if "schema" in parts:
            schemas(bench, tables, root)
        if "merge" in parts:
            merges(bench, tables, root)
        for table in tables:
            table.graph.close()
    if "commits" in parts:
        many_commits(bench)


def main(argv: Sequence[str] | None = None) -> None:
    bench = Benchmark("change", argv, flags=flags)
    parts = bench.options.parts or PARTS
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise SystemExit(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    root = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        run(bench, parts, root)
    finally:
        shutil.rmtree(root)
    bench.finish()


if __name__ == "__main__":
    main()
