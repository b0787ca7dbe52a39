"""Tasks read, stream and write a graph in S3, with the options of the source."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.s3_server import S3Root

import omnigraph
from omnigraph.pipeline.source.source import OmnigraphSource

pytestmark = pytest.mark.s3


def source(root: S3Root, **options: str) -> OmnigraphSource:
    """A source after pickling, as in another process."""
    storage = {f"storage.{name}": value for name, value in root.options.items()}
    made = OmnigraphSource({"path": root.uri, "type": "P", **storage, **options})
    passed: OmnigraphSource = pickle.loads(pickle.dumps(made))
    return passed


@pytest.mark.slow
def test_a_graph_in_s3_can_be_read_streamed_and_written(s3_root: S3Root) -> None:
    graph = omnigraph.init(s3_root.uri, "node P { name: String @key  n: I64? }", storage_options=s3_root.options)
    writing = source(s3_root)
    writer = writing.writer(writing.schema(), False)
    rows = pa.table({"name": ["a", "b"], "n": [1, 2]})
    writer.commit([writer.write(iter(rows.to_batches()))])
    assert graph.session.store.objects.list("__staging") == []
    writer.abort([writer.write(iter(rows.to_batches())), None])
    assert graph.session.store.objects.list("__staging") == []
    start = graph.snapshot().commit.id
    graph.load(pa.table({"name": ["b"], "n": [3]}), mode="merge", type_name="P")

    reading = source(s3_root, where="n > 1")
    reader = reading.reader(reading.schema())
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
    assert found == [{"id": "b", "n": 3, "name": "b"}]

    following = source(s3_root, changes="true", startingCommit=start)
    stream = following.streamReader(following.schema())
    begin = stream.initialOffset()
    parts = stream.partitions(begin, stream.latestOffset(begin, ReadAllAvailable()))
    changes = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]
    assert [(row["_change"], row["id"], row["n"]) for row in changes] == [("update", "b", 3)]
