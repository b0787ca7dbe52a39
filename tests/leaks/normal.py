"""Answers without what differs between two equal graphs: ids, times and addresses."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.lang.schema.catalog import Catalog

_TOKEN = re.compile(r"[A-Za-z0-9_-]{100,}")
_ULID = re.compile(r"(?<![0-9A-Za-z])(?:[0-9][0-9A-HJKMNP-TV-Z]{25}|[0-9][0-9a-hjkmnp-tv-z]{25})(?![0-9A-Za-z])")
_OPAQUE = re.compile(
    r'"(?:graph|incarnation)": ?"[A-Za-z0-9_-]{24}"|"[A-Za-z0-9_-]{43}"|"types": ?"[A-Za-z0-9_=-]{64}"|'
    r"(?<![0-9a-f])(?:[0-9a-f]{32}|[0-9a-f]{64})(?![0-9a-f])"
)
"""Digests, which depend on ids: of the graph, the branch and the types in tokens, and the entity tags of blobs."""
_TIMES = re.compile(
    r"""((?:created|authored)_at["']?[:=] ?)\d{16}|\b\d+(?:\.\d+)? ?(?:ms|s)\b"""
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?"
)
_INTERNAL = ("etag", "type_id", "span")
"""Attributes with addresses of objects in storage, and with digests of the random identity of a graph."""

_DIGEST_BYTES = 32


@dataclass
class Normal:
    """Replaces ids by numbers in the order in which they first appear, for all answers of one graph.

    Attributes:
        root: the address of the graph.
        commits: the names of commits that requests use, by id. An answer may repeat the id of its request.
    """

    root: str
    commits: Mapping[str, str] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)

    def text(self, given: str) -> str:
        """A text without ids, times and the address of the graph. Tokens are decoded."""
        given = _TOKEN.sub(self._token, given.replace(self.root, "<root>"))
        given = _ULID.sub(self._number, given)
        given = _OPAQUE.sub(self._number, given)
        return _TIMES.sub(lambda found: f"{found[1] or ''}<time>", given)

    def _token(self, found: re.Match[str]) -> str:
        try:
            raw = urlsafe_b64decode(found[0] + "=" * (-len(found[0]) % 4))[:-_DIGEST_BYTES]
            return f"<token {json.dumps(json.loads(raw))}>"
        except ValueError:
            return found[0]

    def _number(self, found: re.Match[str]) -> str:
        if found[0] in self.commits:
            return f"<commit {self.commits[found[0]]}>"
        return self._ids.setdefault(found[0], f"<id {len(self._ids)}>")

    def value(self, given: object) -> str:
        """A value of the Python interface, as a text with all that a caller can read from it."""
        return self.text(str(plain(given)))


def plain(given: object, depth: int = 0) -> Any:
    """A value as lists, dictionaries and texts. Objects show their public attributes."""
    assert depth < 12, f"{given!r} has no end"
    match given:
        case Enum():
            return given.value
        case None | bool() | int() | float() | str():
            return given
        case bytes() | bytearray() | memoryview():
            return bytes(given).decode("latin-1")
        case datetime() | date():
            return given.isoformat()
        case pa.Table() | pa.RecordBatch():
            return [str(given.schema), given.to_pylist()]
        case np.ndarray():
            return plain(given.tolist(), depth + 1)
        case pa.RecordBatchReader():
            return plain(given.read_all(), depth + 1)
        case OmnigraphError():
            shown = {name: value for name, value in vars(given).items() if not name.startswith("_")}
            return [type(given).__name__, str(given), plain(shown, depth + 1)]
        case Mapping():
            return {str(plain(name, depth + 1)): plain(value, depth + 1) for name, value in given.items()}
        case Sequence() | Iterator():
            return [plain(one, depth + 1) for one in given]
        case set() | frozenset():
            return sorted(map(str, (plain(one, depth + 1) for one in given)))
    if isinstance(given, Catalog):
        return {kind: plain(getattr(given, kind), depth + 1) for kind in ("interfaces", "nodes", "edges")}
    if is_dataclass(given):
        names = [one.name for one in fields(given) if not one.name.startswith("_") and one.name not in _INTERNAL]
        return {name: plain(getattr(given, name), depth + 1) for name in names}
    return _public(given, depth)


def _public(given: object, depth: int) -> Any:
    for name in ("to_json", "to_pylist", "to_table", "render"):
        found = getattr(given, name, None)
        if callable(found) and not isinstance(given, type):
            return plain(found(), depth + 1)
    return repr(given)
