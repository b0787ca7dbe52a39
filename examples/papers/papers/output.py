"""Writing batches to files, a column at a time."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from papers.columns import join
from papers.types import EDGES, TYPES

Batches = Iterable[tuple[str, pa.RecordBatch]]


def write_ndjson(batches: Batches, folder: Path) -> list[Path]:
    """All types in one file, `papers.ndjson`: one load, one commit. A null property is left out."""
    path = folder / "papers.ndjson"
    with path.open("wb") as file:
        for name, batch in batches:
            lines = ndjson_lines(name, batch)
            _, offsets, data = lines.buffers()
            end = memoryview(offsets).cast("i")[len(lines)]
            file.write(memoryview(data)[:end])
    return [path]


def write_csv(batches: Batches, folder: Path) -> list[Path]:
    """One file for each type. Lists and vectors are JSON arrays, blobs `base64:…`, and a null is an empty cell."""
    return _write_each(batches, folder, "csv", pa.csv.CSVWriter, _csv_column)


def write_parquet(batches: Batches, folder: Path) -> list[Path]:
    """One file for each type, with the types of `TYPES`."""
    return _write_each(batches, folder, "parquet", pa.parquet.ParquetWriter, lambda column: column)


FORMATS: dict[str, Callable[[Batches, Path], list[Path]]] = {
    "ndjson": write_ndjson,
    "csv": write_csv,
    "parquet": write_parquet,
}


def ndjson_lines(name: str, batch: pa.RecordBatch) -> pa.StringArray:
    """One load envelope for each row, with its line break."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if name in EDGES:
        ends = (json_column(columns.pop(end)) for end in ("from", "to"))
        head: list[pa.Array | str] = [f'{{"edge":"{name}","from":', next(ends), ',"to":', next(ends), ',"data":{']
    else:
        head = [f'{{"type":"{name}","data":{{']
    members = [join(f',"{key}":', json_column(column)) for key, column in columns.items()]
    if not members:
        return join(*head, "}}\n")
    data = pc.binary_join_element_wise(*members, "", null_handling="replace", null_replacement="")
    return join(*head, pc.replace_substring_regex(data, "^,", ""), "}}\n")


def json_column(column: pa.Array) -> pa.StringArray:
    """Each value as JSON text; null stays null."""
    kind = column.type
    if pa.types.is_string(kind):
        escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
        return join('"', pc.replace_substring(escaped, "\n", "\\n"), '"')
    if pa.types.is_date32(kind):
        return join('"', column.cast(pa.string()), '"')
    if pa.types.is_timestamp(kind):
        return join('"', _instant_text(column), '"')
    if pa.types.is_large_binary(kind):
        return join('"', _blob_text(column), '"')
    if pa.types.is_nested(kind) and column.offset:
        column = column.take(pa.array(np.arange(len(column))))  # the buffers below are read from their start
    if pa.types.is_fixed_size_list(kind):
        items = json_column(column.values)
        width = kind.list_size
        offsets = pa.array(np.arange(len(column) + 1, dtype=np.int32) * width)
        text = pc.binary_join(pa.ListArray.from_arrays(offsets, items), ",")
        return pc.if_else(column.is_valid(), join("[", text, "]"), pa.scalar(None, pa.string()))
    if pa.types.is_list(kind):
        valid = column.is_valid()
        items = pa.ListArray.from_arrays(column.offsets, json_column(column.values), mask=pc.invert(valid))
        return join("[", pc.binary_join(items, ","), "]")
    return column.cast(pa.string())


def _write_each(
    batches: Batches,
    folder: Path,
    suffix: str,
    open_sink: Callable[[Path, pa.Schema], pa.csv.CSVWriter | pa.parquet.ParquetWriter],
    convert: Callable[[pa.Array], pa.Array],
) -> list[Path]:
    """A file for each type, opened when its first batch comes."""
    sinks: dict[str, pa.csv.CSVWriter | pa.parquet.ParquetWriter] = {}
    paths = []
    with ExitStack() as stack:
        for name, batch in batches:
            columns = [convert(column) for column in batch.columns]
            fields = [f.with_type(column.type) for f, column in zip(TYPES[name], columns, strict=True)]
            schema = pa.schema(fields)
            if name not in sinks:
                paths.append(folder / f"{name}.{suffix}")
                sinks[name] = stack.enter_context(open_sink(paths[-1], schema))
            sinks[name].write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return paths


def _csv_column(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return _instant_text(column)
    if pa.types.is_large_binary(column.type):
        return _blob_text(column)
    return json_column(column) if pa.types.is_nested(column.type) else column


def _instant_text(column: pa.Array) -> pa.StringArray:
    return pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")


def _blob_text(column: pa.Array) -> pa.StringArray:
    """Managed blob content as load files spell it. Each distinct content is encoded once."""
    encoded = column.dictionary_encode()
    texts = [f"base64:{b64encode(content.as_py()).decode()}" for content in encoded.dictionary]
    return pa.array(texts, pa.string()).take(encoded.indices)
