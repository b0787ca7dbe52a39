"""Cursors and page tokens of the change feed.

A token is the base64url text of a JSON object and its SHA-256 digest. It holds everything that a request needs to
continue, so the server keeps no state of consumers. It is valid only for its graph, branch and filters. The digest
detects damage; it does not protect against forged tokens.
"""

# See docs/decisions/0161-tokens-hold-positions.md

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import ChangeCursorError

VERSION = 1
MAX_CHARACTERS = 4096
MAX_EXACT_ID = 256
"""Maximum bytes of an id that a token stores as a whole. Of a longer id, it stores a prefix and a digest."""

_PREFIX_BYTES = 64
_DIGEST_BYTES = 32


class TokenKind(StrEnum):
    """Kinds of tokens."""

    COMMIT_PAGE = "commit-page"
    FEED_CURSOR = "feed-cursor"
    FEED_PAGE = "feed-page"


@dataclass(frozen=True, slots=True)
class Binding:
    """The request that a token belongs to.

    Attributes:
        graph: digest of the identity of the graph.
        genesis: the first commit; None if cleanup has removed it from the history.
        filter: digest of the filters.
        branch: digest of the name of the branch; None for the pages of a commit.
        incarnation: digest of the incarnation of the branch; None for the pages of a commit.
        types: the ids of the types that a feed follows, as numbers or sealed; None if it follows all types. They are
            not compared: a request gives names, and continues with the ids of its token.
    """

    graph: str
    genesis: str | None
    filter: str
    branch: str | None = None
    incarnation: str | None = None
    types: tuple[int, ...] | str | None = None

    def check(self, token: Mapping[str, Any]) -> None:
        """Check that a token belongs to the request.

        Raises:
            ChangeCursorError: the token belongs to another request.
        """
        checks = (
            ("graph", self.graph, "it belongs to another graph"),
            ("branch", self.branch, "it belongs to another branch"),
            ("incarnation", self.incarnation, "the branch was reset, or deleted and created again"),
            ("filter", self.filter, "it was made for other filters"),
        )
        for name, expected, reason in checks:
            if token.get(name) != expected:
                raise ChangeCursorError(reason)
        # The first commit is not compared if cleanup has removed it since the token was made.
        if None not in (self.genesis, token.get("genesis")) and self.genesis != token.get("genesis"):
            raise ChangeCursorError("it belongs to another graph")


@dataclass(frozen=True, slots=True)
class Position:
    """The position inside a commit: the last change that was delivered.

    Attributes:
        kind: `node` or `edge`.
        type_id: the opaque id of the type.
        id: the id of the entity, or a prefix of it if `digest` is set.
        digest: the SHA-256 digest of a long id, in hexadecimal digits.
    """

    kind: str
    type_id: str
    id: str
    digest: str | None = None

    @classmethod
    def of(cls, kind: str, type_id: str, entity_id: str) -> Position:
        data = entity_id.encode()
        if len(data) <= MAX_EXACT_ID:
            return cls(kind, type_id, entity_id)
        prefix = data[:_PREFIX_BYTES].decode(errors="ignore")  # drops an incomplete character at the end
        return cls(kind, type_id, prefix, hashlib.sha256(data).hexdigest())

    def matches(self, entity_id: str) -> bool:
        """Whether an entity id is the one of this position."""
        if self.digest is None:
            return entity_id == self.id
        return hashlib.sha256(entity_id.encode()).hexdigest() == self.digest

    def to_json(self) -> list[str | None]:
        return [self.kind, self.type_id, self.id, self.digest]


def digest_of(text: str) -> str:
    """A short digest of a text."""
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:18]).decode()


def encode(kind: TokenKind, binding: Binding, **members: object) -> str:
    """Make a token."""
    content = {
        "v": VERSION,
        "kind": kind.value,
        "graph": binding.graph,
        "genesis": binding.genesis,
        "filter": binding.filter,
        "branch": binding.branch,
        "incarnation": binding.incarnation,
        **({} if binding.types is None else {"types": binding.types}),
        **{name: value.to_json() if isinstance(value, Position) else value for name, value in members.items()},
    }
    data = orjson.dumps(content)
    return urlsafe_b64encode(data + hashlib.sha256(data).digest()).rstrip(b"=").decode()


def decode(text: object, kind: TokenKind, binding: Binding) -> Mapping[str, Any]:
    """Read and check a token.

    Raises:
        ChangeCursorError: it is damaged, of another kind, or belongs to another request.
    """
    content = _content(text)
    if content.get("v") != VERSION:
        raise ChangeCursorError("this release does not know its version")
    if content.get("kind") != kind.value:
        raise ChangeCursorError(f"it is not a {kind.value} token")
    binding.check(content)
    return content


def _content(text: object) -> dict[str, Any]:
    if not isinstance(text, str) or not text:
        raise ChangeCursorError("it is not a token")
    if len(text) > MAX_CHARACTERS:
        raise ChangeCursorError(f"it is longer than {MAX_CHARACTERS:,} characters")
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError:
        raise ChangeCursorError("it is damaged") from None
    data, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
    # The decoder ignores some characters, so the canonical text is compared, too.
    canonical = urlsafe_b64encode(raw).rstrip(b"=").decode()
    if hashlib.sha256(data).digest() != digest or canonical != text:
        raise ChangeCursorError("it is damaged")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise ChangeCursorError("it is damaged") from None
    if not isinstance(found, dict):
        raise ChangeCursorError("it is damaged")
    return found


def text_member(token: Mapping[str, Any], name: str) -> str:
    """A text in a token.

    Raises:
        ChangeCursorError: the token does not have it.
    """
    found = token.get(name)
    if not isinstance(found, str):
        raise ChangeCursorError("it is damaged")
    return found


def row_member(token: Mapping[str, Any]) -> int | None:
    """The row of the manifest from which the commit of a token is searched; None if the token does not have it.

    Raises:
        ChangeCursorError: it is not a number.
    """
    found = token.get("row")
    if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < 0):
        raise ChangeCursorError("it is damaged")
    return found


def position_member(token: Mapping[str, Any], name: str) -> Position:
    """A position in a token.

    Raises:
        ChangeCursorError: the token does not have it.
    """
    found = token.get(name)
    if (
        not isinstance(found, list)
        or len(found) != 4
        or not all(isinstance(one, str) for one in found[:3])
        or not (found[3] is None or isinstance(found[3], str))
    ):
        raise ChangeCursorError("it is damaged")
    return Position(*found)
