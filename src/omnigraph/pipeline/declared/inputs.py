"""The sources of a run: their state at the start of the run, and their rows if they are loaded without SQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b

import pyarrow as pa

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.pipeline.declared.document import Document, FileSource, GraphSource, Source, SparkSource
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.write.input.formats import RowFile
from omnigraph.write.input.row_files import row_files


@dataclass(frozen=True, slots=True)
class PinnedSource:
    """A source with its state at the start of the run.

    Attributes:
        source: the declared source.
        files: the files of the source; empty for other kinds of sources.
        graph: the graph, if the source is a type of a graph.
        view: the snapshot of this graph.
        digest: a digest of the state; None if it cannot be determined.
    """

    source: Source
    files: tuple[RowFile, ...] = ()
    graph: Graph | None = None
    view: Snapshot | None = None
    digest: str | None = None

    def export(self) -> TypeExport:
        """The rows of a type of a graph."""
        assert isinstance(self.source, GraphSource)
        assert self.graph is not None
        assert self.view is not None
        self.graph.session.require_whole("a declared pipeline")
        found = exported(self.view, self.graph.session.schemas.at(self.view), self.source.type.rpartition(":")[2])
        parts = [part for part in found if self.source.type in (part.name, part.key)]
        if len(parts) > 1:
            raise InputError(
                f"'{self.source.type}' is a node type and an edge type", hint="add the prefix node: or edge:"
            )
        self.graph.session.require_types(Action.EXPORT, self.view.manifest, [parts[0].key])
        return parts[0]


def pin_sources(document: Document, graph: Graph, opened: ExitStack) -> dict[str, PinnedSource]:
    """Capture the current state of all sources.

    Args:
        document: the declaration.
        graph: the target graph.
        opened: closes the graphs that this function opens.

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


def _pinned(source: Source, graph: Graph, opened: ExitStack) -> PinnedSource:
    if isinstance(source, FileSource):
        files = tuple(row_files(source.path, graph.session.storage_options))
        return PinnedSource(source, files, digest=_digest([_state(file) for file in files]))
    if isinstance(source, GraphSource):
        handle = graph
        if source.graph is not None:
            storage = graph.session.storage_options
            handle = opened.enter_context(open_graph(source.graph, read_only=True, storage_options=storage))
        view = handle.session.readable(source.branch, source.commit, Action.EXPORT)
        opened.enter_context(reading(handle.session.store.leases, WorkKind.PIPELINE, view.manifest))
        pinned = PinnedSource(
            source, graph=handle, view=view, digest=_digest([str(view.uri), view.commit.id, source.type])
        )
        pinned.export()
        return pinned
    return PinnedSource(source)


def _state(file: RowFile) -> tuple[str, int, str]:
    """The path, size, and modification time or etag of a file. Does not read the content of the file."""
    return str(file.input), file.input.size, file.input.state


def _digest(value: object) -> str:
    return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def load_source(document: Document, pinned: Mapping[str, PinnedSource]) -> object:
    """The source argument of a load without SQL."""
    if document.records:
        return [document_path(pinned[name].source) for name in document.records]
    return {target.key: direct_rows(pinned[target.rows]) for target in document.targets}


def direct_rows(pinned: PinnedSource) -> object:
    """The rows of a source without SQL."""
    if pinned.view is not None:
        part = pinned.export()
        return pa.RecordBatchReader.from_batches(part.schema, part.batches())
    return document_path(pinned.source)


def document_path(source: Source) -> str:
    assert not isinstance(source, SparkSource | GraphSource)
    return source.path
