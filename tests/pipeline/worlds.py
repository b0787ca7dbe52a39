"""Inputs of every kind for loads, generated from a seed, and the outcome of loading them."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from omnigraph.errors import BadRowsError, ConstraintError, OmnigraphError
from omnigraph.graph import Graph, init
from omnigraph.write.receipt import LoadReceipt

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    joined: Date?
    tags: [String]?
    @range(age, 0..120)
}
node Note {
    text: String
    score: F64?
    level: enum(low, high)?
    size: U32?
    @unique(text, size)
}
edge Knows: Person -> Person @card(0..4) {
    since: DateTime?
    weight: F32?
}
edge Wrote: Person -> Note @card_in(0..3) {
    place: String
    @key(src, dst, place)
}
"""

Rows = dict[str, list[dict[str, Any]]]
_ULID = re.compile(rb"\b[0-9A-HJKMNP-TV-Z]{26}\b")


def rows(seed: int, people: int = 60, notes: int = 40, *, first: int = 0) -> Rows:
    """Rows that satisfy every constraint."""
    chance = random.Random(seed)
    names = [f"person {i}" for i in range(first, first + people)]
    texts = [f"n{i}" for i in range(first, first + notes)]
    return {
        "Person": [
            {
                "name": name,
                "age": chance.choice([None, 0, 7, 120]),
                "email": chance.choice([None, f"{name}@x.org"]),
                "joined": chance.choice([None, "2024-02-29"]),
                "tags": chance.choice([None, [], ["a", "b"]]),
            }
            for name in names
        ],
        "Note": [
            {"id": text, "text": f"text of {text}", "score": i / 7, "level": chance.choice(["low", None]), "size": i}
            for i, text in enumerate(texts)
        ],
        "Knows": [
            {"from": names[i % people], "to": chance.choice(names), "weight": i / 2, "since": "2024-01-01T00:00:00Z"}
            for i in range(people * 3)
        ],
        "Wrote": [
            {"from": chance.choice(names), "to": texts[i % notes], "place": f"place {i}"} for i in range(notes * 2)
        ],
    }


def write(directory: Path, content: Rows, format: str) -> Any:
    """Write the rows as a source that can be loaded."""
    directory.mkdir(parents=True)
    if format == "records":
        return [_envelope(name, row) for name, each in content.items() for row in each]
    if format == "tables":
        return {name: pa.Table.from_pylist(each) for name, each in content.items()}
    for name, each in content.items():
        if format == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(each), directory / f"{name}.parquet", row_group_size=20)
        elif format == "arrow":
            with pa.OSFile(str(directory / f"{name}.arrow"), "wb") as sink:
                table = pa.Table.from_pylist(each)
                with pa.ipc.new_file(sink, table.schema) as file:
                    file.write_table(table, max_chunksize=25)
        elif format == "csv":
            with (directory / f"{name}.csv").open("w", newline="") as sink:
                names = list(dict.fromkeys(key for row in each for key in row if key != "tags"))
                lines = csv.DictWriter(sink, names, extrasaction="ignore")
                lines.writeheader()
                lines.writerows(each)
    if format in ("ndjson", "lines"):
        texts = [json.dumps(_envelope(name, row)) for name, each in content.items() for row in each]
        random.Random(7).shuffle(texts)
        if format == "lines":  # with blank lines, and a record on several lines
            texts = [text if i % 11 else f"\n{text}" for i, text in enumerate(texts)]
            texts[-5] = json.dumps(json.loads(texts[-5]), indent=2)
        (directory / "all.ndjson").write_text("\n".join(texts) + "\n")
    return str(directory)


def _envelope(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    data = {key: value for key, value in row.items() if value is not None and key not in ("from", "to")}
    if "from" in row or "to" in row:
        ends = {end: row[end] for end in ("from", "to") if end in row}
        return {"edge": name, **ends, "data": data}
    return {"type": name, "data": data}


def graph_at(place: Path) -> Graph:
    """A graph with some content, so that loads meet existing rows."""
    graph = init(place, SCHEMA)
    graph.load([_envelope(name, row) for name, each in rows(1, 30, 20).items() for row in each], mode="append")
    return graph


@dataclass(frozen=True)
class Outcome:
    """The outcome of a load.

    Attributes:
        said: the receipt without its commit, or the error.
        content: the exported graph afterwards, with numbers in place of generated ids.
        commits: the number of commits.
    """

    said: str
    content: bytes
    commits: int


def outcome(graph: Graph, load: Callable[[], LoadReceipt], branch: str = "main") -> Outcome:
    """Load, and return the outcome."""
    try:
        receipt = load()
        members = {**receipt.to_json(), "commit": None, "engine": None, "why": None}
        members.pop("merges", None)  # only some engines report it
        said = json.dumps(members, default=str)
    except OmnigraphError as error:
        said = f"{type(error).__name__}: {error.render() if hasattr(error, 'render') else error}\n{_detail(error)}"
    exported = b"".join(graph.export(branch=branch)) if branch in [b.name for b in graph.branches] else b""
    count = len(graph.commits.list(branch=branch).commits) if exported else 0
    return Outcome(numbered(said.encode()).decode(), numbered(exported), count)


def _detail(error: OmnigraphError) -> str:
    if isinstance(error, BadRowsError):
        return f"{error.total}: {error.problems}"
    if isinstance(error, ConstraintError):
        return f"{error.total}: {error.violations}"
    return error.hint or ""


def numbered(text: bytes) -> bytes:
    """Generated ids, numbered in order of appearance, because they differ in every run."""
    known: dict[bytes, bytes] = {}
    return _ULID.sub(lambda match: known.setdefault(match[0], b"id-%d" % len(known)), text)
