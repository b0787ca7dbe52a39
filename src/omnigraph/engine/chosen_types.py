"""The types of a request that names some or none, limited to those that the actor may use."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.commit.manifest import Manifest
from omnigraph.engine.access import Action
from omnigraph.engine.session import Session
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key


def chosen_keys(
    session: Session, action: Action, given: Sequence[str] | None, *views: Manifest
) -> tuple[str, ...] | None:
    """The keys of the types of a request. None means all types, and that the policy does not limit them.

    Args:
        session: the session.
        action: `read`, `export` or `change`.
        given: the names or keys of types in the request. The actor must be allowed all of them. Without names, the
            request is limited to the types that the actor may use.
        views: the states that the request uses.

    Raises:
        AccessDeniedError: the actor may not use a named type, or may use none at all.
    """
    visible: dict[str, bool] = {}
    for view in views:
        scope = session.scope(action, view)
        if scope is None:
            return None
        if given:
            keys = [key for name in given for key in ([name] if ":" in name else [node_key(name), edge_key(name)])]
            session.require_types(action, view, keys)
        elif scope.has_hidden_types and not scope.visible(scope.types):
            session.require_types(action, view, scope.types)
        for key in scope.types:
            visible[key] = visible.get(key, True) and not scope.hides(key)
    if given or all(visible.values()):
        return None
    return tuple(sorted(key for key, seen in visible.items() if seen))


def chosen_names(
    session: Session, action: Action, given: Sequence[str] | None, *views: Manifest
) -> tuple[str, ...] | None:
    """As `chosen_keys`, for requests that take names without kinds.

    A name is left out if it also belongs to a type of the other kind that the actor may not use.
    """
    keys = chosen_keys(session, action, given, *views)
    if keys is None:
        return None
    hidden = set()
    for view in views:
        scope = session.scope(action, view)
        hidden |= {TypeKey.parse(key).name for key in scope.types if scope.hides(key)} if scope is not None else set()
    names = tuple(name for name in dict.fromkeys(TypeKey.parse(key).name for key in keys) if name not in hidden)
    if not names:  # no filter would mean all types
        session.require_all_rows(action, views[0])
    return names
