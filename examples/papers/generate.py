"""Writes the example library to files.

python examples/papers/generate.py --papers 10000 --seed 7 --out data --format ndjson
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from papers import BATCH_ROWS, TYPES, generate
from papers.output import FORMATS


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the example library to files.")
    parser.add_argument("--papers", type=int, default=10_000, help="how many papers; all else grows with it")
    parser.add_argument("--seed", type=int, default=7, help="another seed gives another library")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write; made if missing")
    parser.add_argument("--format", choices=sorted(FORMATS), default="ndjson")
    parser.add_argument("--types", nargs="+", choices=list(TYPES), metavar="TYPE", help="only these types")
    parser.add_argument("--batch-rows", type=int, default=BATCH_ROWS, help="how much is made at a time")
    parser.add_argument("--no-vectors", action="store_true", help="leave vectors to whoever loads the files")
    options = parser.parse_args()
    if options.papers < 1 or options.batch_rows < 1:
        parser.error("--papers and --batch-rows are at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    batches = generate(options.papers, options.seed, types=options.types, batch_rows=options.batch_rows)
    if options.no_vectors:
        batches = (
            (name, batch.select([n for n in batch.schema.names if n != "abstract_vec"])) for name, batch in batches
        )
    for path in FORMATS[options.format](batches, options.out):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
