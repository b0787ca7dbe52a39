"""The sources of a run: what they are at this moment, and their rows for a load that needs no SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.pipeline.declared.document import Document, FileSource, GraphSource, Source, SparkSource
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.write.input.formats import RowFile
from omnigraph.write.input.row_files import row_files


@dataclass(frozen=True, slots=True)
class Pinned:
    """A source as it is when the run begins.

    Attributes:
        files: the files, if it has any.
        graph: the handle of the graph that it is a type of.
        view: the state of that graph.
        mark: what tells this state from others; None where nobody can say.
    """

    source: Source
    files: tuple[RowFile, ...] = ()
    graph: Graph | None = None
    view: Snapshot | None = None
    mark: str | None = None

    def export(self) -> TypeExport:
        """The rows of a type of a graph."""
        assert isinstance(self.source, GraphSource)
        assert self.graph is not None
        assert self.view is not None
        found = exported(self.view, self.graph.session.schemas.at(self.view), self.source.type.rpartition(":")[2])
        parts = [part for part in found if self.source.type in (part.name, part.key)]
        if len(parts) > 1:
            raise InputError(
                f"'{self.source.type}' is a node type and an edge type", hint="write node: or edge: before it"
            )
        return parts[0]


def pin_sources(document: Document, graph: Graph, opened: ExitStack) -> dict[str, Pinned]:
    """The sources as they are now.

    Args:
        document: the declaration.
        graph: the graph that is loaded.
        opened: closes the graphs that are opened for it.

    Raises:
        InputError: a source cannot be read.
        NotFoundError: there is no such graph, branch or commit.
    """
    found = {}
    for name, source in document.sources.items():
        try:
            found[name] = _pinned(source, graph, opened)
        except InputError as error:
            raise InputError(f"{document.file}: sources.{name}: {error.message}", hint=error.hint) from error
    return found


def _pinned(source: Source, graph: Graph, opened: ExitStack) -> Pinned:
    if isinstance(source, FileSource):
        files = tuple(row_files(source.path, graph.session.storage_options))
        return Pinned(source, files, mark=_mark([_state(file) for file in files]))
    if isinstance(source, GraphSource):
        handle = graph
        if source.graph is not None:
            storage = graph.session.storage_options
            handle = opened.enter_context(open_graph(source.graph, read_only=True, storage_options=storage))
        view = handle.session.snapshot_at(source.branch, source.commit)
        opened.enter_context(reading(handle.session.store.leases, WorkKind.PIPELINE, view.manifest))
        pinned = Pinned(source, graph=handle, view=view, mark=_mark([str(view.uri), view.commit.id, source.type]))
        pinned.export()
        return pinned
    return Pinned(source)


def _state(file: RowFile) -> tuple[str, int, str]:
    """What tells a file from one that was written later: nothing is read for it."""
    return str(file.input), file.input.size, file.input.state


def _mark(value: object) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def load_source(document: Document, pinned: Mapping[str, Pinned]) -> object:
    """What a load takes, of sources alone."""
    if document.records:
        return [document_path(pinned[name].source) for name in document.records]
    return {target.key: direct_rows(pinned[target.rows]) for target in document.targets}


def direct_rows(pinned: Pinned) -> object:
    """The rows of a source without SQL."""
    if pinned.view is not None:
        part = pinned.export()
        return pa.RecordBatchReader.from_batches(part.schema, part.batches())
    return document_path(pinned.source)


def document_path(source: Source) -> str:
    assert not isinstance(source, SparkSource | GraphSource)
    return source.path
