"""Results of queries as JSON, NDJSON and Arrow streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.read.result.encoding import json_parts
from omnigraph.read.result.result import Result

JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
RESULT_MEDIA = (JSON, NDJSON, ARROW)

_FEW_ROWS = 32
"""Number of rows that are encoded one by one."""

_PLAIN = frozenset((pa.string(), pa.bool_(), pa.int32(), pa.int64(), pa.uint32(), pa.uint64()))
"""Types whose values `orjson` writes as `objects` does."""

_TEXT_ROWS, _ARROW_ROWS = 2_048, 8_192
"""Number of rows that are encoded together."""


def json_result(result: Result, *, frozen: bool = False) -> bytes | Iterator[bytes]:
    """The result as one JSON object; in parts if there are many rows.

    Args:
        result: the result.
        frozen: whether to leave out the members that older clients do not know.
    """
    members: dict[str, Any] = result.metadata() | {"columns": result.columns}
    if not frozen:
        members["graph_commit_id"] = result.graph_commit_id
        if result.warnings:
            members["warnings"] = result.warnings
    head = orjson.dumps(members)[:-1]
    if result.row_count > _TEXT_ROWS:
        return _json_parts(head, result)
    if result.row_count <= _FEW_ROWS and all(kind in _PLAIN for kind in result.to_arrow().schema.types):
        # The same text as below, without a dozen calls of Arrow, which take longer than so few rows.
        return b"".join([head, b',"rows":', orjson.dumps(result.to_arrow().to_pylist()), b"}"])
    return b"".join([head, b',"rows":[', b",".join(json_parts(result.batches(), ",")), b"]}"])


def _json_parts(head: bytes, result: Result) -> Iterator[bytes]:
    yield head + b',"rows":['
    for number, text in enumerate(json_parts(result.batches(_TEXT_ROWS), ",")):
        if number:
            yield b","
        yield text
    yield b"]}"


def ndjson_result(result: Result) -> Iterator[bytes]:
    """One line of metadata, then one line per row."""
    members = {"kind": "metadata"} | result.metadata() | {"columns": result.columns}
    yield orjson.dumps(members | {"graph_commit_id": result.graph_commit_id}) + b"\n"
    for text in json_parts(result.batches(_TEXT_ROWS), "\n"):
        yield text + b"\n"


def arrow_result(result: Result) -> Iterator[bytes]:
    """An Arrow IPC stream. The metadata of its schema has the members of the JSON answer, without the rows."""
    members = result.metadata() | {"graph_commit_id": result.graph_commit_id}
    schema = result.to_arrow().schema.with_metadata({"omnigraph": orjson.dumps(members)})
    sink = _Sink()
    with pa.ipc.new_stream(sink, schema) as writer:
        yield sink.take()
        for batch in result.batches(_ARROW_ROWS):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            yield sink.take()
    yield sink.take()


class _Sink:
    """A file that keeps the bytes that Arrow writes until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        """There is no other buffer."""

    def take(self) -> bytes:
        """The bytes that were written since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken
