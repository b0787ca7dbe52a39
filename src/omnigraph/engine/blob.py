"""Blob: find the blob of an entity in a snapshot."""

from __future__ import annotations

from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.session import Session
from omnigraph.read.blobs import Blob, find_blob


def blob(session: Session, view: Snapshot, type_name: str, entity_id: str, prop: str) -> Blob:
    """The blob of an entity. It can be read in ranges.

    Raises:
        NotFoundError: there is no such type or entity, or the property is null.
        InputError: the property is not a Blob.
    """
    return find_blob(view, session.schemas.at(view), session.type_key(type_name, view), entity_id, prop)
