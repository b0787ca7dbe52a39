"""A graph with every type, and with the extreme values of each."""

from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path

import pyarrow as pa

import omnigraph
from omnigraph.graph import Graph

SCHEMA = """
node Thing {
    name: String @key
    text: String?
    flag: Bool?
    small: I32?
    big: I64?
    count: U32?
    huge: U64?
    single: F32?
    double: F64?
    day: Date?
    moment: DateTime?
    face: Vector(3)?
    kind: enum(raw, cooked)?
    texts: [String]?
    numbers: [U64]?
    days: [Date]?
    moments: [DateTime]?
    reals: [F64]?
    photo: Blob?
    film: Blob?
}
node Place { country: String  code: I32  @key(country, code) }
node Note { body: String }
node Same { name: String @key }
edge Near: Thing -> Place { since: Date?  @key(src, dst) }
edge Wrote: Thing -> Note { scan: Blob? }
edge Same: Note -> Note
"""

SINGLE = [struct.unpack("f", struct.pack("f", number))[0] for number in (0.1, 3.4028234663852886e38, 1e-45)]


def things() -> pa.Table:
    """Four entities: ordinary values, extreme values, empty values, nulls."""
    return pa.table(
        {
            "name": ["plain", "zürich ☃ \u2028 \U0001f600", 'quo"te\\back\nline\ttab\u0001', "nothing"],
            "text": ["hello", "\u0000\u001f\u007f", "", None],
            "flag": [True, False, False, None],
            "small": pa.array([1, -(2**31), 2**31 - 1, None], pa.int32()),
            "big": pa.array([1, -(2**63), 2**63 - 1, None], pa.int64()),
            "count": pa.array([1, 0, 2**32 - 1, None], pa.uint32()),
            "huge": pa.array([1, 2**64 - 1, 2**63, None], pa.uint64()),
            "single": pa.array([*SINGLE, None], pa.float32()),
            "double": pa.array([0.1, -0.0, 1.7976931348623157e308, None], pa.float64()),
            "day": [dt.date(2020, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
            "moment": pa.array([0, -62135596800000, 253402300799999, None], pa.int64()).view(pa.timestamp("ms", "UTC")),
            "face": pa.array([[1, 2, 3], [-0.0, 1e-30, 3.4e38], [0, 0, 0], None], pa.list_(pa.float32(), 3)),
            "kind": ["raw", "cooked", None, None],
            "texts": pa.array([["a", 'b"'], [""], [], None], pa.list_(pa.utf8())),
            "numbers": pa.array([[1, 2], [2**64 - 1], [], None], pa.list_(pa.uint64())),
            "days": pa.array([[dt.date(2020, 1, 1)], [dt.date(1, 1, 1)], [], None], pa.list_(pa.date32())),
            "moments": pa.array([[0, 1], [-1], [], None], pa.list_(pa.timestamp("ms", "UTC"))),
            "reals": pa.array([[0.1, 1e22], [-0.0, 5e-324], [], None], pa.list_(pa.float64())),
            "photo": pa.array([b"hello", bytes(range(256)) * 300, b"", None], pa.large_binary()),
            "film": pa.array([None, b"\0" * 3_000_000, None, None], pa.large_binary()),
        }
    )


def fill(graph: Graph) -> Graph:
    names = things()["name"].to_pylist()
    graph.load(
        {
            "Thing": things(),
            "Place": pa.table({"country": ["CH", "NZ"], "code": pa.array([8001, -1], pa.int32())}),
            "Note": pa.table({"id": ["n2", "n1", "N1"], "body": ["b", "a", "c"]}),
            "Near": pa.table(
                {"from": names[:2], "to": ['["8001","CH"]', '["-1","NZ"]'], "since": [None, "2020-01-01"]}
            ),
            "Wrote": pa.table({"from": [names[0], names[1]], "to": ["n1", "n2"], "scan": [b"scan", None]}),
            "node:Same": pa.table({"name": ["s"]}),
            "edge:Same": pa.table({"from": ["n1"], "to": ["n2"]}),
        },
        mode="append",
    )
    return graph


def full(path: Path) -> Graph:
    """Create a graph with all of them."""
    return fill(omnigraph.init(path, SCHEMA))
