"""Declared pipelines: a file that names sources, SQL steps, target types, and checks of the result."""

from omnigraph.pipeline.declared.checking import CheckOutcome
from omnigraph.pipeline.declared.document import Document, read_document
from omnigraph.pipeline.declared.runs import RunReceipt, RunRequest, Stage, run

__all__ = ["CheckOutcome", "Document", "RunReceipt", "RunRequest", "Stage", "read_document", "run"]
