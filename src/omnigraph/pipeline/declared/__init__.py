"""Declared pipelines: a file that says where rows come from, what becomes of them, and what must hold afterwards."""

from omnigraph.pipeline.declared.checking import CheckOutcome
from omnigraph.pipeline.declared.document import Document, read_document
from omnigraph.pipeline.declared.runs import RunReceipt, RunRequest, Stage, run

__all__ = ["CheckOutcome", "Document", "RunReceipt", "RunRequest", "Stage", "read_document", "run"]
