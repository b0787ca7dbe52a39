"""Possible secrets are not in the text form of our objects, in logs or tracebacks."""

from __future__ import annotations

from omnigraph.pipeline.declared import RunRequest, read_document
from omnigraph.pipeline.source.options import Options
from omnigraph.pipeline.source.pinned import GraphLocation
from omnigraph.pipeline.spark.session import SparkSettings
from omnigraph.pipeline.spark.staging import Staging
from omnigraph.storage.files.input import S3File, tree_of
from omnigraph.storage.uri import GraphUri

SECRET = "open sesame"
STORAGE = {"aws_secret_access_key": SECRET}


def test_storage_options_are_not_shown() -> None:
    options = Options.read({"path": "s3://bucket/graph", "type": "P", "storage.aws_secret_access_key": SECRET})
    staging = Staging.new(GraphUri.parse("s3://bucket/graph", STORAGE))
    tree, _ = tree_of("s3://bucket/rows.csv", STORAGE)
    file = S3File("bucket", "rows.csv", 3, None, tuple(STORAGE.items()))
    shown = repr([options, staging, tree, file, GraphLocation.of(options)])
    assert SECRET not in shown
    assert "bucket" in shown


def test_spark_settings_are_not_shown() -> None:
    assert SECRET not in repr(SparkSettings("local", options={"spark.hadoop.fs.s3a.secret.key": SECRET}))


def test_pipeline_variables_are_not_shown() -> None:
    declared = {
        "pipeline": "ports",
        "variables": {"password": None},
        "sources": {"ports": {"format": "jdbc", "options": {"password": "${password}"}}},
        "load": {"nodes": {"Port": "ports"}},
        "mode": "append",
        "then": "merge",
    }
    document = read_document(declared, {"password": SECRET})
    assert document.variables == {"password": SECRET}
    assert SECRET not in repr(document)
    assert SECRET not in repr(RunRequest(variables={"password": SECRET}))
