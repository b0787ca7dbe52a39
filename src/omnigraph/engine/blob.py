"""Blob and entity: single entities of a state, and their blobs."""

from __future__ import annotations

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.access import Action
from omnigraph.engine.session import At, Session
from omnigraph.read.blobs import Blob, find_blob


def entity(
    session: Session, type_name: str, entity_id: str, branch: str | None = None, at: At | None = None
) -> dict[str, object] | None:
    """One node or edge by id; None if there is none.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read the branch or the type.
        NotFoundError: there is no such type or state.
    """
    return entity_of(session, session.readable(branch, at), type_name, entity_id)


def entity_of(
    session: Session, view: Snapshot, type_name: str, entity_id: str, rules_of: Manifest | None = None
) -> dict[str, object] | None:
    """One node or edge of a snapshot that the actor may read.

    Args:
        session: the session.
        view: the snapshot.
        type_name: the type.
        entity_id: the id.
        rules_of: the state whose rules apply; by default the snapshot itself.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read the type.
        NotFoundError: there is no such type.
    """
    key = session.type_key(type_name, view)
    session.require_types(Action.READ, rules_of or view.manifest, [key])
    return view.entity(key, entity_id)


def blob(
    session: Session, type_name: str, entity_id: str, prop: str, branch: str | None = None, at: At | None = None
) -> Blob:
    """The blob of an entity. It can be read in ranges.

    Raises:
        AccessDeniedError: the policy does not allow the actor to read the branch or the type.
        NotFoundError: there is no such type or entity, or the property is null.
        InputError: the property is not a Blob.
    """
    view = session.readable(branch, at)
    key = session.type_key(type_name, view)
    session.require_types(Action.READ, view.manifest, [key])
    return find_blob(view, session.schemas.at(view), key, entity_id, prop)
