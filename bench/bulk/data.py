"""A graph of people who know each other, as Parquet and as NDJSON files: the same for the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = """\
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: Date?  weight: F32? }
"""
BATCH = 1 << 17


def write_files(folder: Path, nodes: int, edges: int) -> None:
    """`parquet/` and `ndjson/` below a folder, with a file for each type."""
    random = np.random.default_rng(7)
    for kind in ("parquet", "ndjson"):
        (folder / kind).mkdir(parents=True)
    names = pc.binary_join_element_wise("person-", pa.array(np.arange(nodes)).cast(pa.utf8()), "")
    cities = pa.array([f"city {i}" for i in range(1000)])
    people = pa.table(
        {
            "name": names,
            "age": pa.array(random.integers(0, 100, nodes), pa.int32()),
            "city": cities.take(pa.array(random.integers(0, len(cities), nodes))),
        }
    )
    knows = pa.table(
        {
            "from": names.take(pa.array(random.integers(0, nodes, edges))),
            "to": names.take(pa.array(random.integers(0, nodes, edges))),
            "since": pa.array(random.integers(10_000, 20_000, edges).astype(np.int32)).cast(pa.date32()),
            "weight": random.random(edges, np.float32),
        }
    )
    for name, table, lines in (("Person", people, _people), ("Knows", knows, _edges)):
        pq.write_table(table, folder / "parquet" / f"{name}.parquet")
        with (folder / "ndjson" / f"{name}.ndjson").open("wb") as file:
            for batch in table.to_batches(BATCH):
                for text in _contents(lines(batch)):
                    file.write(text)


def _people(rows: pa.RecordBatch) -> pa.Array:
    return _joined(
        '{"type":"Person","data":{"name":"', rows["name"], '","age":', rows["age"], ',"city":"', rows["city"], '"}}\n'
    )


def _edges(rows: pa.RecordBatch) -> pa.Array:
    return _joined(
        '{"edge":"Knows","from":"',
        rows["from"],
        '","to":"',
        rows["to"],
        '","data":{"since":"',
        rows["since"],
        '","weight":',
        rows["weight"],
        "}}\n",
    )


def _joined(*parts: str | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*(part if isinstance(part, str) else part.cast(pa.utf8()) for part in parts), "")


def _contents(texts: pa.Array) -> Iterator[memoryview]:
    """All texts one after another, without making a Python string of each."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)
    yield memoryview(data)[ends[texts.offset] : ends[texts.offset + len(texts)]]
