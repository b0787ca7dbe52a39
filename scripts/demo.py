"""The tour that `make demo` gives: every command is shown as you would type it, then run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import SparkUnavailableError
from omnigraph.pipeline.spark.session import check_available

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/papers"
GRAPH = "papers.omni"
COPY = "copy.omni"
DOI = "10.5555/demo.1"


@dataclass(frozen=True)
class Step:
    """One stop of the tour.

    Attributes:
        why: the text above the command.
        command: as it is typed.
        refused: whether the command fails.
    """

    why: str
    command: str
    refused: bool = False


@dataclass(frozen=True)
class Program:
    """A stop that runs a Python program."""

    why: str
    text: str


READS = f"--query {EXAMPLE}/queries.gq"
WRITES = f"--branch review --query {EXAMPLE}/mutations.gq"

TRANSACTION = f"""\
import omnigraph

with omnigraph.open("{GRAPH}") as graph:
    review = graph.branch("review")
    with review.transaction(message="a reading group starts") as work:
        work.mutate('query topic() {{ insert Topic {{ slug: "demos", name: "Demos", depth: 2 }} }}')
        work.load({{"SubtopicOf": [{{"from": "demos", "to": "computing"}}]}}, mode="append")
        work.mutate('query about() {{ insert About {{ from: "{DOI}", to: "demos", weight: 0.5, primary: false }} }}')
    print("one commit for all of it:", work.commit.message)
    print("seen on the branch:", review.entity("Topic", "demos")["name"])
    print("seen on main:", graph.entity("Topic", "demos"))
"""

SUMMARY = f"""\
import omnigraph

with omnigraph.open("{GRAPH}", read_only=True) as graph:
    for name in ("main", "review"):
        branch = graph.branch(name)
        rows = {{kind: 0 for kind in ("node", "edge")}}
        for key, table in branch.snapshot().tables.items():
            rows[key.partition(":")[0]] += table.row_count
        print(f"{{name:<8}}{{rows['node']:>6}} nodes{{rows['edge']:>7}} edges{{len(list(branch.commits)):>4}} commits")
"""

LOAD = Step(
    "Load it through Spark, as one commit. Every value, key, edge and cardinality is checked, and abstracts become "
    "vectors.",
    f"omnigraph load {GRAPH} --data data/papers.ndjson --mode append --engine spark",
)
LOAD_HERE = Step(
    "Load it in this process, as one commit. Every value, key, edge and cardinality is checked, and abstracts become "
    "vectors.",
    f"omnigraph load {GRAPH} --data data/papers.ndjson --mode append",
)

TOUR: tuple[Step | Program, ...] = (
    Step(
        "Compile a schema, and queries against it. Every name and type is checked before anything runs.",
        f"omnigraph check --schema {EXAMPLE}/schema.pg {EXAMPLE}/queries.gq {EXAMPLE}/mutations.gq",
    ),
    Step(
        "Plan a schema change: each step, and whether it is safe for stored data.",
        f"omnigraph schema plan --from {EXAMPLE}/schema.pg --to {EXAMPLE}/schema_next.pg",
    ),
    Step(
        "Generate the data of a small research library.",
        f"python {EXAMPLE}/generate.py --papers 300 --seed 7 --no-vectors --out data",
    ),
    Step(
        "Create a graph from the schema: a directory of Lance tables.",
        f"omnigraph init {GRAPH} --schema {EXAMPLE}/schema.pg",
    ),
    LOAD,
    Step(
        "Full-text search, vector search and traversal in one query: papers that this author does not know.",
        f"omnigraph query {GRAPH} recommend {READS} --params "
        + shlex.quote('{"text": "how quantum computers correct errors", "orcid": "0000-0271-8281-8284", "n": 5}'),
    ),
    Step(
        "The experts of a subject: a full-text search, grouped by author.",
        f"omnigraph query {GRAPH} experts {READS} --params "
        + shlex.quote('{"text": "graph", "n": 2}')
        + " --format kv",
    ),
    Step(
        "The physical plan of this query, with the rows and the time of each step.",
        f"omnigraph explain {GRAPH} experts --analyze {READS} --params " + shlex.quote('{"text": "graph", "n": 2}'),
    ),
    Step("Tag this state, so that cleanup keeps it.", f"omnigraph tag create {GRAPH} v1"),
    Step("Create a branch of the whole graph. No data is copied.", f"omnigraph branch create {GRAPH} review"),
    Step(
        "Insert a paper, its author and its topic on the branch. A model in this process computes the vector.",
        f"omnigraph mutate {GRAPH} submit_paper {WRITES} --params "
        + shlex.quote(
            f'{{"doi": "{DOI}", "title": "A tour of graphs", "abstract": "How a graph with branches feels.", '
            '"author": "0000-0271-8281-8284", "topic": "computing"}'
        ),
    ),
    Step(
        "An edge to an institution that does not exist is an error, and nothing is written.",
        f"omnigraph mutate {GRAPH} register_author {WRITES} --params "
        + shlex.quote(
            '{"orcid": "0000-0002-1825-0097", "name": "Josiah Carberry", "languages": ["en"], '
            '"institution": "nowhere", "since": "2026-01-01"}'
        ),
        refused=True,
    ),
    Step(
        "Attach a file to the paper.",
        f"omnigraph mutate {GRAPH} attach_pdf {WRITES} --params "
        + shlex.quote(f'{{"doi": "{DOI}", "pdf": "base64:VGhlIGZpbGUgb2YgYSBwYXBlci4K", "pages": 1}}'),
    ),
    Step("Read it back.", f"omnigraph blob get {GRAPH} node Paper {DOI} pdf --branch review"),
    Program("A transaction on the branch: several writes become one commit.", TRANSACTION),
    Step("The history of the branch.", f"omnigraph commit list {GRAPH} --branch review"),
    Step(
        "Query the branch: the authors of the new paper.",
        f"omnigraph query {GRAPH} byline {READS} --branch review --params " + shlex.quote(f'{{"doi": "{DOI}"}}'),
    ),
    Step(
        "Export the branch. The same state gives the same bytes.",
        f"omnigraph export {GRAPH} --branch review --out review.ndjson",
    ),
    Step("Create another graph …", f"omnigraph init {COPY} --schema {EXAMPLE}/schema.pg"),
    Step("… load the export …", f"omnigraph load {COPY} --data review.ndjson --mode append"),
    Step("… and export it again.", f"omnigraph export {COPY} --out copy.ndjson"),
    Step("Compare both exports: cmp prints nothing, because they are equal.", "cmp review.ndjson copy.ndjson"),
    Program("The size of both branches.", SUMMARY),
)


def tour() -> tuple[Step | Program, ...]:
    """The stops on this machine. Without Java, the load runs in this process instead of Spark, and a note says so."""
    try:
        check_available()
    except SparkUnavailableError as error:
        print(f"# {error.message}. The demo runs in one process, without Spark. The graph is the same.")
        print(f"# To run it with Spark: {error.hint}")
        return tuple(LOAD_HERE if stop is LOAD else stop for stop in TOUR)
    return TOUR


def main() -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omnigraph-demo-") as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for stop in tour():
            if not show(stop, folder):
                return 1
    print(f"\n{len(TOUR)} stops, {time.monotonic() - began:.0f} seconds.", end=" ")
    print("A library was checked, loaded, queried, branched, changed, exported and loaded again.")
    print(f"The files are in {EXAMPLE}/; the graphs were removed. README.md shows how to create one that you keep.")
    return 0


def show(stop: Step | Program, folder: str) -> bool:
    """Show a stop and run it; return whether it succeeded or failed as expected."""
    if isinstance(stop, Program):
        shown = "\n".join(f"| {line}".rstrip() for line in stop.text.splitlines())
        print(f"\n# {stop.why}\n$ python\n{shown}", flush=True)
        command: list[str | Path] = [sys.executable, "-c", stop.text]
    else:
        print(f"\n# {stop.why}\n$ {stop.command}", flush=True)
        program, *arguments = shlex.split(stop.command)
        ours = Path(sys.executable).with_name(program)
        command = [ours if ours.exists() else program, *arguments]
    code = subprocess.run(command, cwd=folder, check=False).returncode
    expected = isinstance(stop, Step) and stop.refused
    if (code != 0) != expected:
        print(f"demo: that ended with exit code {code}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
