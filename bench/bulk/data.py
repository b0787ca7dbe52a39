"""A graph of people who know each other, as Parquet and as NDJSON files: the same for the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMA = """\
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: Date?  weight: F32? }
"""
PORTION = 1 << 20
"""So many rows are made at once, and lie together in a Parquet file."""
BATCH = 1 << 17
CITIES = 1000


def write_files(folder: Path, nodes: int, edges: int) -> None:
    """`parquet/` and `ndjson/` below a folder, with a file for each type. What is in memory does not grow with them."""
    for kind in ("parquet", "ndjson"):
        (folder / kind).mkdir(parents=True)
    for name, tables, lines in (("Person", _persons(nodes), _people), ("Knows", _knows(nodes, edges), _edges)):
        with (folder / "ndjson" / f"{name}.ndjson").open("wb") as file, ExitStack() as held:
            writer: pq.ParquetWriter | None = None
            for table in tables:
                if writer is None:
                    writer = held.enter_context(pq.ParquetWriter(folder / "parquet" / f"{name}.parquet", table.schema))
                writer.write_table(table)
                for batch in table.to_batches(BATCH):
                    for text in _contents(lines(batch)):
                        file.write(text)


def _persons(nodes: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    cities = pa.array([f"city {i}" for i in range(CITIES)])
    for first, count in _portions(nodes):
        yield pa.table(
            {
                "name": _names(np.arange(first, first + count)),
                "age": pa.array(random.integers(0, 100, count), pa.int32()),
                "city": cities.take(pa.array(random.integers(0, CITIES, count))),
            }
        )


def _knows(nodes: int, edges: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(11)
    for _, count in _portions(edges):
        yield pa.table(
            {
                "from": _names(random.integers(0, nodes, count)),
                "to": _names(random.integers(0, nodes, count)),
                "since": pa.array(random.integers(10_000, 20_000, count).astype(np.int32)).cast(pa.date32()),
                "weight": random.random(count, np.float32),
            }
        )


def _portions(rows: int) -> Iterator[tuple[int, int]]:
    for first in range(0, max(rows, 1), PORTION):
        yield first, min(PORTION, rows - first)


def _names(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.binary_join_element_wise("person-", pa.array(numbers).cast(pa.utf8()), "")


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
