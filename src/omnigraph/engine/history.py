"""The history of one entity: its changes, and the commit that set each value."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from omnigraph.engine.access import Action
from omnigraph.engine.requests import BlameRequest, LogRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, shown
from omnigraph.history import entity
from omnigraph.history.entity import BlamedValue, EntityLog, LoggedChange
from omnigraph.lang.schema.type_key import TypeKey

_Found = TypeVar("_Found", LoggedChange, BlamedValue)


def log(session: Session, request: LogRequest) -> EntityLog:
    """The changes of an entity, newest first.

    Raises:
        NotFoundError: there is no such type or state, or the entity never existed.
        VersionReclaimedError: cleanup has removed the state.
    """
    view = session.readable(request.branch, request.at)
    key, entity_id = session.type_key(request.type_name, view), _checked(request.entity_id)
    session.require_types(Action.READ, view.manifest, [key])
    found = entity.entity_log(session.store, view.manifest, key, entity_id, follow=request.follow)
    return replace(found, changes=tuple(_shown(session, change) for change in found.changes))


def blame(session: Session, request: BlameRequest) -> tuple[BlamedValue, ...]:
    """The commit that set each value of an entity.

    Raises:
        NotFoundError: there is no such type, entity or state.
        InputError: the type has no such property.
        VersionReclaimedError: cleanup has removed the state.
    """
    view = session.readable(request.branch, request.at)
    key, entity_id = session.type_key(request.type_name, view), _checked(request.entity_id)
    session.require_types(Action.READ, view.manifest, [key])
    catalog, name = session.schemas.at(view).catalog, TypeKey.parse(key).name
    declared = catalog.nodes.get(name) if key.startswith("node:") else catalog.edges.get(name)
    fixed = ("id", *((declared.key if declared is not None else None) or ()))
    found = entity.blame(
        session.store, view.manifest, key, entity_id, request.property, follow=request.follow, fixed=fixed
    )
    return tuple(_shown(session, value) for value in found)


def _shown(session: Session, found: _Found) -> _Found:
    """A change or a value, with its commit as the actor sees it."""
    return found if found.commit is None else replace(found, commit=session.shown_commit(found.commit))


def _checked(entity_id: object) -> str:
    if not isinstance(entity_id, str):
        raise InputError(f"an id must be a text, not {shown(entity_id)}", hint='even if the key is a number: "10"')
    return entity_id
