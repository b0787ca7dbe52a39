"""A graph of a server, with those members of an open graph that commands use."""

# See docs/decisions/0330-a-command-resolves-its-target-once.md

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import NotFoundError, OutcomeUnknownError

if TYPE_CHECKING:
    from omnigraph.cli.target import Served
    from omnigraph.client.answers import BlobAnswer, SchemaApplied
    from omnigraph.client.clients import GraphClient

P = ParamSpec("P")
T = TypeVar("T")

State = Callable[[str | None, str | datetime | None], tuple[str | None, str | None]]
"""Looks up times: the branch or the commit to read."""

_RANGE_BYTES = 4 * 1024 * 1024
"""Bytes of a blob that one request reads."""

_COMMIT_ID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")

_COMMITS = 1_000
"""Commits of one page, in the search for a time."""


def _written(write: Callable[P, T]) -> Callable[P, T]:
    """A write that reports an unknown outcome if Ctrl-C ends the wait for its answer."""

    @wraps(write)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return write(*args, **kwargs)
        except KeyboardInterrupt as error:
            from omnigraph.client.error_bodies import READ_FIRST

            raise OutcomeUnknownError("the server may still finish the write", hint=READ_FIRST) from error

    return call


class ServedGraph:
    """A graph of a server. A context manager.

    Its members have the names, the arguments and the answers of `Graph`, as far as a server has them.

    Attributes:
        uri: the address of the graph.
        tags: none, because a server does not list them.
        actor: None, because only the server knows the actor of the token.
    """

    tags: tuple[Named, ...] = ()
    actor: str | None = None

    def __init__(self, place: Served, client: GraphClient) -> None:
        self.uri = place.uri
        self._client = client
        self.query = client.query
        self.mutate = _written(client.mutate)
        self.load = _written(client.load)
        self.load_ndjson = _written(client.load_ndjson)
        self.merge = _written(client.branches.merge)
        self.queries = client.queries
        self.invoke_mutation = _written(client.queries.invoke_mutation)
        self.branches = ServedBranches(client)
        self.commits = ServedCommits(client)
        self.changes = ServedChanges(client)
        self.schema = ServedSchema(client, self.state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def state(self, branch: str | None, at: str | datetime | None) -> tuple[str | None, str | None]:
        """The branch or the commit to read. A server reads no times: they are looked up in the history.

        Raises:
            NotFoundError: the branch has no commit that early.
        """
        if not isinstance(at, datetime):
            return branch, at
        micros, cursor = int(at.timestamp() * 1_000_000), None
        while True:
            page = self._client.commits.list(branch=branch, limit=_COMMITS, cursor=cursor)
            for commit in page.commits:
                if commit.created_at <= micros:
                    return None, commit.id
            cursor = page.cursor
            if cursor is None:
                raise NotFoundError(f"branch '{branch or 'main'}' has no commit before that time")

    def full_commit_id(self, text: str | None) -> str | None:
        """The id of a commit, given its id, the beginning of it, or a tag. Conditions of a server need the whole id."""
        if text is None or _COMMIT_ID.fullmatch(text):
            return text
        return self._client.commits.retrieve(text).id

    def tables(self, branch: str | None, at: str | datetime | None) -> dict[str, Any]:
        """The versions of all tables, as JSON."""
        branch, commit = self.state(branch, at)
        members = asdict(self._client.snapshot(branch, at=commit))
        return members | {"datasets": list(members["datasets"])}

    def export(self, *, types: list[str] | None, branch: str | None, at: str | datetime | None) -> Iterator[bytes]:
        """The entities of a state, as NDJSON, in parts of any size."""
        branch, commit = self.state(branch, at)
        return self._client.export_parts(types=types, branch=branch, at=commit)

    def blob(
        self, type_key: str, entity_id: str, property: str, *, branch: str | None, at: str | datetime | None
    ) -> ServedBlob:
        """A blob. Its ranges are read from the commit in which it was found."""
        branch, commit = self.state(branch, at)
        cell = (type_key, entity_id, property)
        return ServedBlob(self._client, cell, self._client.blobs.stat(*cell, branch=branch, snapshot=commit))


@dataclass(frozen=True, slots=True)
class Named:
    """A branch or a tag."""

    name: str


class ServedBranches:
    """The branches of a graph of a server."""

    def __init__(self, client: GraphClient) -> None:
        self._client = client
        self.delete = _written(client.branches.delete)

    def __iter__(self) -> Iterator[Named]:
        return map(Named, self._client.branches.list())

    def __contains__(self, name: object) -> bool:
        return name in self._client.branches.list()

    def create(self, name: str, *, source: str | None = None, commit: str | None = None) -> Named:
        return Named(_written(self._client.branches.create)(name, source=source, commit=commit))


class ServedCommits:
    """The commits of a graph of a server."""

    def __init__(self, client: GraphClient) -> None:
        self.list = client.commits.list
        self.get = client.commits.retrieve


class ServedChanges:
    """The change feed of a graph of a server."""

    def __init__(self, client: GraphClient) -> None:
        self._client = client
        self.of = client.commits.changes
        self.poll = client.changes.poll

    def baseline(self, *, branch: str | None, **filters: Any) -> ServedBaseline:
        return ServedBaseline(self._client, branch, filters)


class ServedBaseline:
    """A baseline of a server. Its cursor arrives with its last line.

    Attributes:
        snapshot: the name of the snapshot. It is known after the last line.
    """

    def __init__(self, client: GraphClient, branch: str | None, filters: dict[str, Any]) -> None:
        self._client = client
        self._branch = branch
        self._filters = filters
        self._end: dict[str, str] = {}
        self.snapshot = ""

    def lines(self) -> Iterator[bytes]:
        """The entities as NDJSON, and a last line with the cursor."""
        last = b""
        for part in self._client.changes.baseline(branch=self._branch, **self._filters):
            yield part
            last = part
        self._end = orjson.loads(last)["baseline"]
        commit = self._client.commits.retrieve(self._end["snapshot_commit_id"])
        self.snapshot = f"manifest:{self._branch or 'main'}:v{commit.manifest_version}"

    def to_json(self) -> dict[str, str]:
        return self._end


class ServedSchema:
    """The schema of a graph of a server."""

    def __init__(self, client: GraphClient, state: State) -> None:
        self._client = client
        self._state = state

    def show(self, *, branch: str | None, at: str | datetime | None) -> str:
        """The source text of the schema of a state."""
        branch, commit = self._state(branch, at)
        return self._client.schema.get(branch=branch, at=commit)

    def apply(self, source: str, **options: Any) -> SchemaApplied:
        return _written(self._client.schema.apply)(source, **options)


class ServedBlob:
    """A blob of a server.

    Attributes:
        size: its size; None for a reference.
        etag: its entity tag; None for a reference.
        uri: the target of a reference; None for content.
        snapshot_id: the snapshot that contains it.
    """

    def __init__(self, client: GraphClient, cell: tuple[str, str, str], found: BlobAnswer) -> None:
        self._client = client
        self._cell = cell
        self._commit = found.commit_id
        self.size, self.etag, self.uri, self.snapshot_id = found.size, found.etag, found.uri, found.snapshot_id

    def iter(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a range, in parts."""
        for first in range(start, end, _RANGE_BYTES):
            last = min(first + _RANGE_BYTES, end)
            part = self._client.blobs.get(*self._cell, snapshot=self._commit, start=first, end=last)
            yield part.data or b""
