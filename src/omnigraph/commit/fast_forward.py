"""Fast-forward: a branch gets, as one commit, what a branch holds that was made from its head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.commit.writer import Operation, TableWrite, WriteRequest, write
from omnigraph.errors import MergeRequiredError, ReadSetChangedError


def fast_forward(store: Store, source: str, begun: Manifest, request: WriteRequest) -> Commit | None:
    """Bring what a branch holds to the branch that it was made from. None means that there is nothing to bring.

    Args:
        store: the graph.
        source: the branch that holds it.
        begun: what the source was made from: the target as it was, and as it must be still.
        request: what is said about the commit; its branch is the target.

    Raises:
        MergeRequiredError: the target has moved. Nothing happened.
        PreconditionFailedError: it has moved, and the request names the head that it should have.
    """
    view = store.capture(source)
    if view.head.id == begun.head.id:
        return None

    def prepare(target: Manifest) -> Sequence[TableWrite]:
        if (target.incarnation, target.head.id) != (begun.incarnation, begun.head.id):
            raise MergeRequiredError(target.branch, begun.head.id, target.head.id)
        writes = []
        for key, pin in view.tables.items():
            before = target.tables[key]
            if pin.ref != before.ref:
                found = store.tables.difference(before.ref, pin.ref)
                if not found.is_empty:
                    rows, gone = found.rows, found.deleted
                    writes.append(TableWrite(key, Operation.CHANGE, source=rows, deleted=gone, models=pin.models))
        return writes

    request = replace(request, kind=WriterKind.BRANCH_MERGE, replayable=False)
    try:
        return write(store, request, prepare)
    except ReadSetChangedError as error:
        head = store.capture(request.branch).head.id
        raise MergeRequiredError(request.branch, begun.head.id, head) from error
