"""The types that a feed follows. Their names are resolved once, and the ids are part of every cursor and page token.

So a type stays followed when it is renamed, and a later type with its old name is not followed.
"""

# See docs/decisions/0161-tokens-hold-positions.md

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import shake_256
from itertools import pairwise
from typing import Any

import orjson

from omnigraph.changes.aligned_types import GraphState
from omnigraph.commit.manifest import TableId
from omnigraph.errors import ChangeCursorError, InputError, ResourceLimitError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import type_key

MAX_BYTES = 1024
"""The maximum size of the ids of types in a token, so that a token with any position has at most 4,096 characters."""

MAX_SEALED_BYTES = MAX_BYTES * 3 // 4
"""The same for restricted feeds, whose tokens have the ids in base64."""

_BLOCK = 48
"""The size of sealed ids is a multiple of this number of bytes."""

Followed = frozenset[TableId]


def ids_by_name(state: GraphState) -> dict[str, Followed]:
    """The ids of the types of a state by name. A node type and an edge type may have the same name."""
    catalog, found = state.accepted.catalog, dict[str, Followed]()
    for kind, names in ((TypeKind.NODE, catalog.nodes), (TypeKind.EDGE, catalog.edges)):
        for name in names:
            found[name] = found.get(name, frozenset()) | {state.manifest.tables[type_key(kind, name)].id}
    return found


def resolved(names: Sequence[str], states: Iterable[GraphState], most: int = MAX_BYTES) -> Followed:
    """The ids of named types. Each name is looked up in the states in order; the first state that has it counts.

    Args:
        names: the names.
        states: the states.
        most: the maximum size of the ids in a token.

    Raises:
        InputError: no state has the type.
        ResourceLimitError: the ids do not fit into a token.
    """
    found: dict[str, Followed] = {}
    known: set[str] = set()
    for state in states:
        of_state = ids_by_name(state)
        known |= of_state.keys()
        found = {name: of_state[name] for name in names if name in of_state} | found
        if len(found) == len(names):
            break
    for name in names:
        if name not in found:
            raise InputError(f"there is no type '{cut(name)}'", hint=did_you_mean(name, sorted(known)))
    ids = frozenset[TableId]().union(*found.values())
    size = len(orjson.dumps(to_member(ids)))
    if size > most:
        hint = "follow fewer types, or all types"
        raise ResourceLimitError("change_continuation_token_encoded_bytes", most, size, place="types", hint=hint)
    return ids


def check_names(names: Sequence[str], followed: Followed, head: GraphState) -> None:
    """Check that no name means another type after a followed type was dropped.

    Raises:
        ChangeCursorError: a followed type was dropped, and a name belongs to a type that is not followed.
    """
    now = ids_by_name(head)
    if followed <= frozenset[TableId]().union(*now.values()):
        return
    for name in names:
        if not now.get(name, frozenset()) <= followed:
            raise ChangeCursorError(f"it follows a type that was dropped, and '{cut(name)}' is another type now")


def to_member(ids: Followed) -> list[int]:
    """Ids as a list for a token: the first id, then the differences between successive ids."""
    ordered = sorted((one.type_id, one.incarnation) for one in ids)
    return [number for (a, b), (c, d) in pairwise([(0, 0), *ordered]) for number in (c - a, d - b)]


def sealed(ids: Followed, key: str) -> str:
    """Ids as an unreadable text for the token of a restricted feed. The numbers of types tell how many are hidden."""
    data = orjson.dumps(to_member(ids))
    data = data.ljust(-(-len(data) // _BLOCK) * _BLOCK)  # so that the length tells nothing of the numbers
    return urlsafe_b64encode(_masked(data, key)).decode()


def _masked(data: bytes, key: str) -> bytes:
    """The bytes, combined with a stream of bytes that depends on the key. A second call gives the original bytes."""
    stream = shake_256(key.encode()).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))


def from_member(token: Mapping[str, Any], key: str) -> Followed | None:
    """The ids of a token; None if it has none.

    Args:
        token: the content of the token.
        key: the key that `sealed` got.

    Raises:
        ChangeCursorError: the token is damaged.
    """
    given = token.get("types")
    if given is None:
        return None
    if isinstance(given, str):
        try:
            given = orjson.loads(_masked(urlsafe_b64decode(given), key))
        except ValueError:
            raise ChangeCursorError("it is damaged") from None
    if not isinstance(given, list) or len(given) % 2 or not all(type(one) is int for one in given):
        raise ChangeCursorError("it is damaged")
    found, type_id, incarnation = [], 0, 0
    for index in range(0, len(given), 2):
        type_id, incarnation = type_id + given[index], incarnation + given[index + 1]
        found.append(TableId(type_id, incarnation))
    return frozenset(found)
