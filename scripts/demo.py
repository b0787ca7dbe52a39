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
        why: what it shows.
        command: as it is typed.
        refused: whether the point is that the command fails.
    """

    why: str
    command: str
    refused: bool = False


@dataclass(frozen=True)
class Program:
    """A stop at which Python is spoken."""

    why: str
    text: str


READS = f"--uri {GRAPH} --query {EXAMPLE}/queries.gq"
WRITES = f"--uri {GRAPH} --branch review --query {EXAMPLE}/mutations.gq"

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
        "The schema grows. What would moving to the next version take?",
        f"omnigraph schema plan --from {EXAMPLE}/schema.pg --to {EXAMPLE}/schema_next.pg",
    ),
    Step(
        "Make some data: a small research library.",
        f"python {EXAMPLE}/generate.py --papers 300 --seed 7 --no-vectors --out data",
    ),
    Step(
        "Create a graph from the schema: a directory of Lance tables.",
        f"omnigraph init {GRAPH} --schema {EXAMPLE}/schema.pg",
    ),
    LOAD,
    Step(
        "Ask: words, meaning and structure in one query. What should this author read that is new to them?",
        f"omnigraph query recommend {READS} --params "
        + shlex.quote('{"text": "how quantum computers correct errors", "orcid": "0000-0271-8281-8284", "n": 5}'),
    ),
    Step(
        "Who knows about a subject? Found by words, grouped by author.",
        f"omnigraph query experts {READS} --params " + shlex.quote('{"text": "graph", "n": 2}') + " --format kv",
    ),
    Step(
        "In which steps is that answered, and what did each of them do?",
        f"omnigraph explain experts --analyze {READS} --params " + shlex.quote('{"text": "graph", "n": 2}'),
    ),
    Step("Name this state, so that it stays readable.", f"omnigraph tag create v1 --uri {GRAPH}"),
    Step("Branch the whole graph. Nothing is copied.", f"omnigraph branch create review --uri {GRAPH}"),
    Step(
        "Write to the branch: a paper, its author and its topic. Its vector is computed from the abstract, right here.",
        f"omnigraph mutate submit_paper {WRITES} --params "
        + shlex.quote(
            f'{{"doi": "{DOI}", "title": "A tour of graphs", "abstract": "How a graph with branches feels.", '
            '"author": "0000-0271-8281-8284", "topic": "computing"}'
        ),
    ),
    Step(
        "A mistake is refused with its reason, and nothing is written: no such institution.",
        f"omnigraph mutate register_author {WRITES} --params "
        + shlex.quote(
            '{"orcid": "0000-0002-1825-0097", "name": "Josiah Carberry", "languages": ["en"], '
            '"institution": "nowhere", "since": "2026-01-01"}'
        ),
        refused=True,
    ),
    Step(
        "Attach a file to the paper.",
        f"omnigraph mutate attach_pdf {WRITES} --params "
        + shlex.quote(f'{{"doi": "{DOI}", "pdf": "base64:VGhlIGZpbGUgb2YgYSBwYXBlci4K", "pages": 1}}'),
    ),
    Step("Read it back.", f"omnigraph blob get node Paper {DOI} pdf --uri {GRAPH} --branch review"),
    Program("Several writes as one commit: all of them, or none. On the branch alone.", TRANSACTION),
    Step("The history of the branch.", f"omnigraph commit list {GRAPH} --branch review"),
    Step(
        "Ask the branch: who wrote the paper that only it has?",
        f"omnigraph query byline {READS} --branch review --params " + shlex.quote(f'{{"doi": "{DOI}"}}'),
    ),
    Step(
        "Write everything out. The same state gives the same bytes.",
        f"omnigraph export {GRAPH} --branch review --out review.ndjson",
    ),
    Step("What was written out loads again …", f"omnigraph init {COPY} --schema {EXAMPLE}/schema.pg"),
    Step("… into another graph …", f"omnigraph load {COPY} --data review.ndjson --mode append"),
    Step("… which is the same, to the byte.", f"omnigraph export {COPY} --out copy.ndjson"),
    Step("No news is good news.", "cmp review.ndjson copy.ndjson"),
    Program("So this is where we are.", SUMMARY),
)


def tour() -> tuple[Step | Program, ...]:
    """The stops that there are here: without Java, what would go through Spark goes on in one process, and says so."""
    try:
        check_available()
    except SparkUnavailableError as error:
        print(f"# {error.message}. So the tour goes on without Spark, in one process: the graph is the same.")
        print(f"# To see it with Spark: {error.hint}")
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
    print("A library was checked, loaded, asked, branched, changed, written out, and loaded again as it was.")
    print(f"The files are in {EXAMPLE}/; the graphs are gone again. 'Two minutes' in README.md is about your own.")
    return 0


def show(stop: Step | Program, folder: str) -> bool:
    """Show a stop and run it; whether it went as it should."""
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
