"""Every format out and in again gives the same graph: random schemas, random rows, byte-identical exports."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.dataclass import dataclass
from omnigraph.settings import FSYNC

FORMATS = ("ndjson", "csv", "parquet", "arrow")
_TRICKY = [
    "",
    "null",
    "NULL",
    "\\N",
    "NaN",
    '"',
    '""',
    ",",
    ";\t|",
    "\r",
    "\n",
    "\r\n",
    "\\",
    "\\n",
    "=1+1",
    " x ",
    "'",
]
_TRICKY += [
    "\ufeffx",
    "base64:AA==",
    "[1]",
    "{}",
    "true",
    "007",
    "2024-01-31",
    "\u0001\u001f\u007f",
    "\u2028",
    "\U0001f600",
]
_NAMES = ["from_", "to_", "type", "data", "edge", "null", "_x", "node", "value", "a_B9", "src_", "true", "match"]
_NUMBERS = {"I32": (-(2**31), 2**31 - 1), "I64": (-(2**63), 2**63 - 1), "U32": (0, 2**32 - 1), "U64": (0, 2**64 - 1)}
_DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31)).map(lambda day: (day - date(1970, 1, 1)) // timedelta(1))
_PLACES = count()

# A CSV file cannot contain the NUL character.
texts = st.sampled_from(_TRICKY) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
_SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "String": texts,
    "Bool": st.booleans(),
    **{name: st.integers(*limits) | st.sampled_from(limits) for name, limits in _NUMBERS.items()},
    "F32": _SINGLES,
    "F64": st.floats(allow_nan=False, allow_infinity=False),
    "Date": _DAYS,
    "DateTime": _DAYS.flatmap(lambda day: st.integers(day * 86_400_000, (day + 1) * 86_400_000 - 1)),
    "enum(a, null, on-hold, _, T1)": st.sampled_from(["a", "null", "on-hold", "_", "T1"]),
}
_OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "Vector(2)": st.lists(_SINGLES, min_size=2, max_size=2),
    "Blob": st.binary(max_size=9).map(lambda data: f"base64:{base64.b64encode(data).decode()}"),
    **{f"[{name}]": st.lists(values, max_size=3) for name, values in _SCALARS.items()},
}
_VALUES = _SCALARS | _OTHERS


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, and records that fit it."""

    schema: str
    records: list[dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two node types, and edge types between them: with and without keys, an interface, parallel edges, loops."""
    blocks = ["interface Named { label: String? }"]
    records: list[dict[str, Any]] = []
    nodes: dict[str, list[str]] = {}
    for name in ("Thing", "Same"):
        kinds = _properties(draw)
        key = draw(st.sampled_from([{}, {"k": "String"}, _key(draw, "k"), _key(draw, "k", "l")]))
        label = {"label": "String?"} if draw(st.booleans()) else {}
        members = [f"{each}: {kind}" for each, kind in (kinds | label | key).items()]
        members += [f"@key({', '.join(key)})"] if key else []
        blocks.append(f"node {name}{' implements Named' if label else ''} {{ {'  '.join(members)} }}")
        nodes[name] = draw(st.lists(texts.filter(bool), max_size=4, unique=True))
        if key and list(key.values()) != ["String"]:  # one row, because others may have the same key
            records.append({"type": name, "data": _row(draw, kinds | label | key)})
            nodes[name] = []
        identity = "k" if key else "id"
        records += [{"type": name, "data": {**_row(draw, kinds | label), identity: each}} for each in nodes[name]]
    for name in ("Links", "Same"):
        start, end = draw(st.sampled_from(list(nodes))), draw(st.sampled_from(list(nodes)))
        kinds = _properties(draw)
        keyed = draw(st.booleans())
        members = [f"{each}: {kind}" for each, kind in kinds.items()] + ["@key(src, dst)"] * keyed
        blocks.append(f"edge {name}: {start} -> {end} {{ {'  '.join(members)} }}")
        if nodes[start] and nodes[end]:
            ends = st.tuples(st.sampled_from(nodes[start]), st.sampled_from(nodes[end]))
            pairs = draw(st.lists(ends, max_size=4, unique=keyed))
            for number, (one, other) in enumerate(pairs):
                data = _row(draw, kinds) if keyed else {**_row(draw, kinds), "id": f"e{number}"}
                records.append({"edge": name, "from": one, "to": other, "data": data})
    return Case("\n".join(blocks), records)


def _key(draw: st.DrawFn, *names: str) -> dict[str, str]:
    return {name: draw(st.sampled_from(list(_SCALARS))) for name in names}


def _properties(draw: st.DrawFn) -> dict[str, str]:
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=5, unique=True))
    return {name: draw(st.sampled_from(list(_VALUES))) + draw(st.sampled_from(["", "?"])) for name in names}


def _row(draw: st.DrawFn, kinds: dict[str, str]) -> dict[str, Any]:
    row = {}
    for name, kind in kinds.items():
        values = _VALUES[kind.removesuffix("?")]
        row[name] = draw(st.none() | values if kind.endswith("?") else values)
    return row


@pytest.fixture(scope="module", autouse=True)
def _no_fsync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FSYNC.name, "0")
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round_trips")


def _round_trips(place: Path, case: Case) -> None:
    place = place / str(next(_PLACES))
    with omnigraph.init(place / "first", case.schema) as first:
        first.load(case.records, mode="append")
        expected = b"".join(first.export())
        for format in FORMATS:
            first.export(place / f"one.{format}", format=format)
    for format in FORMATS:
        one, other = place / f"one.{format}", place / f"other.{format}"
        with omnigraph.init(place / format, case.schema) as graph:
            graph.load(one, mode="append")
            assert b"".join(graph.export()) == expected
            graph.export(other, format=format)
        assert _content(other) == _content(one)


def _content(path: Path) -> dict[str, bytes]:
    files = path.iterdir() if path.is_dir() else [path]
    return {file.suffix if file == path else file.name: file.read_bytes() for file in files}


@settings(max_examples=12)
@given(cases())
def test_every_format_out_and_in_again_is_the_same_graph(place: Path, case: Case) -> None:
    _round_trips(place, case)


@pytest.mark.soak
@settings(max_examples=120)
@given(cases())
def test_many_graphs_are_the_same_after_every_format(place: Path, case: Case) -> None:
    _round_trips(place, case)
