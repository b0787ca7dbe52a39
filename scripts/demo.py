"""The tour that `make demo` gives: every command is shown as you would type it, then run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/papers"
GRAPH = "papers.omni"

TOUR = [
    ("Which OmniGraph is this?", "omnigraph version"),
    ("Compile a schema: node types, edge types and their constraints.", f"omnigraph check {EXAMPLE}/schema.pg"),
    (
        "Compile queries against it. Every name and type is checked before anything runs.",
        f"omnigraph check --schema {EXAMPLE}/schema.pg {EXAMPLE}/queries.gq",
    ),
    (
        "Look for what compiles but is probably not meant.",
        f"omnigraph lint --schema {EXAMPLE}/schema.pg --query {EXAMPLE}/queries.gq",
    ),
    ("Is everything in the one format?", f"omnigraph fmt --check {EXAMPLE}/schema.pg {EXAMPLE}/queries.gq"),
    (
        "The schema grows. What would moving to the next version take?",
        f"omnigraph schema plan --from {EXAMPLE}/schema.pg --to {EXAMPLE}/schema_next.pg",
    ),
    (
        "Create a graph from the schema: a directory of Lance tables.",
        f"omnigraph init {GRAPH} --schema {EXAMPLE}/schema.pg",
    ),
    ("Branch the whole graph. Nothing is copied.", f"omnigraph branch create review --uri {GRAPH}"),
    ("Which branches are there?", f"omnigraph branch list {GRAPH}"),
    ("Name a state, so that it stays readable.", f"omnigraph tag create v1 --uri {GRAPH}"),
    ("The history so far.", f"omnigraph commit list {GRAPH}"),
    ("What a branch sees: an exact version of every table.", f"omnigraph snapshot {GRAPH} --branch review"),
]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for why, command in TOUR:
            print(f"\n# {why}\n$ {command}", flush=True)
            program, *arguments = shlex.split(command)
            done = subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=folder, check=False)
            if done.returncode != 0:
                print(f"demo: that command failed with exit code {done.returncode}", file=sys.stderr)
                return 1
    print(f"\nThe files are in {EXAMPLE}/; the graph is gone again. To try your own: source .venv/bin/activate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
