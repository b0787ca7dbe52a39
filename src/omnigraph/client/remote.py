"""A graph of a server: each request of the client becomes an HTTP request, and its answer an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import singledispatchmethod
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode

import orjson
import pyarrow as pa

from omnigraph.client import answers, requests
from omnigraph.client.call_threads import CallThreads
from omnigraph.client.error_bodies import UNREADABLE, strange_answer
from omnigraph.client.http import Message, Reply, Server
from omnigraph.client.parameters import check_bytes, parameters_json
from omnigraph.client.protocol import Settings
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.engines import Engine
from omnigraph.engine.opening import schema_text
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import query_text
from omnigraph.engine.requests import (
    CommitChangesRequest,
    ExportRequest,
    LoadRequest,
    MergeRequest,
    MutateRequest,
    PollRequest,
    SchemaApplyRequest,
)
from omnigraph.errors import (
    BadRowsError,
    BlobRangeError,
    CancelledError,
    CompileError,
    ConfigurationError,
    Conflict,
    NetworkError,
    OmnigraphError,
    Problem,
    SourceText,
    shown,
)
from omnigraph.merge.choices import Strategy
from omnigraph.migrate.allow import Allow
from omnigraph.read.result.result import Result
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.receipt import load_mode

ARROW, NDJSON = "application/vnd.apache.arrow.stream", "application/x-ndjson"
JSON_BODY = (("Content-Type", "application/json"),)
_FIRST_BYTE = (("Range", "bytes=0-0"),)
T = TypeVar("T")

_GRAPH_ID = re.compile(r"[A-Za-z0-9-]{1,64}")

_IN_PLACE = {"engine": (Engine.AUTO, Engine.LOCAL), "cancel": None}
"""Fields that need not be sent: a server computes in its own process, and a cancellation closes the connection."""


class Remote:
    """The requests of a client to a graph of a server.

    Args:
        server: the connections.
        graph_id: the graph; None if the client has named none.
        threads: run the calls of asynchronous clients.
        is_graph: whether the address of the server is that of a graph, which then needs no id.
    """

    def __init__(self, server: Server, graph_id: str | None, threads: CallThreads, *, is_graph: bool = False) -> None:
        if graph_id is not None and not _GRAPH_ID.fullmatch(graph_id):
            raise ConfigurationError(f"{shown(graph_id)} is not the id of a graph", hint="use letters, digits and '-'")
        self._server = server
        self._graph_id = graph_id
        self._threads = threads
        self._is_graph = is_graph

    @property
    def threads(self) -> CallThreads:
        return self._threads

    def of_graph(self, graph_id: str) -> Remote:
        return Remote(self._server, graph_id, self._threads)

    def close(self) -> None:
        self._server.close()
        self._threads.close()

    def answer(self, request: Any, settings: Settings) -> Any:
        cancel = getattr(request, "cancel", None)
        with requests.of_valid_text():
            return self._answer(request, settings if cancel is None else settings.with_cancel(cancel))

    def stream(self, request: Any, settings: Settings) -> Generator[bytes, None, None]:
        if _is_empty(request):
            return
        with requests.of_valid_text():
            message = replace(self._stream_message(request), media=NDJSON)
        if isinstance(request, requests.ExportParts):
            yield from self._server.stream(message, settings)
            return
        lines = _lines(self._server.stream(message, settings))
        if not isinstance(request, requests.BaselineCall):
            yield from lines
            return
        held: bytes | None = None
        for line in lines:
            if held is not None:
                yield held
            held = line
        if held is None or not held.startswith(b'{"baseline":'):
            raise NetworkError("the baseline ended without its last record", hint="discard it, and take another one")
        yield held

    def _stream_message(self, request: Any) -> Message:
        if isinstance(request, requests.BaselineCall):
            given = request.request
            names = {"branch": "branch", "kinds": "kind", "types": "type", "ops": "op"}
            body = _members(given, names) | _listed(given, names)
            return self._post("/changes/baseline", body)
        if isinstance(request, requests.ExportParts):
            return self._stream_message(request.request)
        assert isinstance(request, ExportRequest)
        body = _members(request, {"branch": "branch", "types": "type_names", "at": "snapshot"})
        return self._post("/export", body | _listed(request, {"types": "type_names"}))

    # Requests

    @singledispatchmethod
    def _answer(self, request: Any, settings: Settings) -> Any:
        raise AssertionError(f"no route for {type(request).__name__}")

    @_answer.register
    def _(self, request: requests.HealthRequest, settings: Settings) -> answers.Health:
        return self._json(Message("GET", "/healthz"), settings, answers.health)

    @_answer.register
    def _(self, request: requests.GraphsRequest, settings: Settings) -> tuple[answers.GraphEntry, ...]:
        return self._json(Message("GET", "/graphs"), settings, answers.graphs)

    @_answer.register
    def _(self, request: requests.SnapshotRequest, settings: Settings) -> answers.SnapshotTables:
        query = {"branch": request.branch, "snapshot": request.at}
        return self._get("/snapshot", query, settings, answers.snapshot)

    @_answer.register
    def _(self, request: QueryRequest, settings: Settings) -> Result:
        text = query_text(request.text)
        with _showing(text):
            check_bytes(text, request.name, request.params)
            return self._read("/query", _query(request) | {"query": text}, settings)

    @_answer.register
    def _(self, request: MutateRequest, settings: Settings) -> Any:
        text = query_text(request.text)
        with _showing(text):
            check_bytes(text, request.name, request.params)
            body = _mutation(request) | {"query": text}
            return self._conditional("/mutate", body, request, settings)

    @_answer.register
    def _(self, request: requests.LoadCall, settings: Settings) -> Any:
        given, data = request.load, request.lines()
        load_mode(given.mode)
        if given.lenient:
            body = _members(given, _LOAD | {"lenient": ""}, keyed=True) | {"data": _text_of(data)}
            body.pop("", None)
            return self._write("/load", body, given, settings, answers.load)
        names = {"mode": "mode", "branch": "branch", "base": "from", "message": "message"}
        path = self._path("/load/ndjson", _members(given, names, keyed=True))
        headers = (("Content-Type", NDJSON), *_key(given.idempotency_key))
        return self._json(Message("POST", path, data, headers, writes=True), settings, answers.load)

    @_answer.register
    def _(self, request: requests.BranchesRequest, settings: Settings) -> tuple[str, ...]:
        return self._get("/branches", {}, settings, answers.branches)

    @_answer.register
    def _(self, request: requests.CreateBranchRequest, settings: Settings) -> str:
        body = _members(request, {"name": "name", "source": "from", "commit": "commit"})
        return self._json(self._post("/branches", body, writes=True), settings, answers.name)

    @_answer.register
    def _(self, request: requests.DeleteBranchRequest, settings: Settings) -> None:
        path = self._path(f"/branches/{quote(request.name, safe='')}", {})
        self._json(Message("DELETE", path, writes=True), settings, answers.name)

    @_answer.register
    def _(self, request: MergeRequest, settings: Settings) -> Any:
        names = ("source", "strategy", "preview", "delete_branch", "level", "message", "labels")
        body = _members(
            request, {name: name for name in names} | {"into": "target", "resolutions": "resolutions"}, keyed=True
        )
        if request.resolutions is not None:
            body["resolutions"] = [_resolution(one, side) for one, side in request.resolutions.items()]
        return self._write("/branches/merge", body, request, settings, answers.merge)

    @_answer.register
    def _(self, request: requests.CommitsRequest, settings: Settings) -> Any:
        names = ("branch", "actor", "limit", "cursor")
        return self._get("/commits", _members(request, {n: n for n in names}), settings, answers.commit_page)

    @_answer.register
    def _(self, request: requests.CommitRequest, settings: Settings) -> Any:
        return self._get(f"/commits/{quote(request.commit_id, safe='')}", {}, settings, answers.commit)

    @_answer.register
    def _(self, request: CommitChangesRequest, settings: Settings) -> Any:
        names = {"page_token": "page_token", "limit": "limit", **_FILTERS}
        query = _members(request, names | {"commit": ""}) | _listed(request, _FILTERS)
        query.pop("")
        path = f"/commits/{quote(request.commit, safe='')}/changes"
        return self._get(path, query, settings, answers.change_page)

    @_answer.register
    def _(self, request: PollRequest, settings: Settings) -> Any:
        names = {name: name for name in ("branch", "start", "cursor", "page_token", "limit")}
        query = _members(request, names | _FILTERS) | _listed(request, _FILTERS)
        return self._get("/changes", query, settings, answers.feed_page)

    @_answer.register
    def _(self, request: requests.SchemaRequest, settings: Settings) -> str:
        query = {"branch": request.branch, "snapshot": request.at}
        return self._get("/schema", query, settings, answers.schema_source)

    @_answer.register
    def _(self, request: SchemaApplyRequest, settings: Settings) -> answers.SchemaApplied:
        if Allow(request.allow) not in (Allow.DROPS, Allow.DATA_LOSS):
            raise _not_sent("allow", request.allow)
        body = _members(request, {"message": "message", "labels": "labels", "schema": "", "allow": ""})
        body.pop("")
        body |= {"schema_source": schema_text(request.schema), "allow_data_loss": request.allow == Allow.DATA_LOSS}
        message = self._post("/schema/apply", body, writes=True)
        return self._json(message, settings, answers.schema_applied)

    @_answer.register
    def _(self, request: requests.StoredQueriesRequest, settings: Settings) -> tuple[answers.StoredQueryEntry, ...]:
        return self._get("/queries", {}, settings, answers.stored_queries)

    @_answer.register
    def _(self, request: requests.InvokeRequest, settings: Settings) -> Any:
        call = request.call
        path = f"/queries/{quote(str(call.name), safe='')}"
        if isinstance(call, MutateRequest):
            body = _mutation(call) | {"expect_mutation": True}
            del body["name"]
            return self._conditional(path, body, call, settings)
        body = _query(call) | {"expect_mutation": False}
        del body["name"]
        return self._read(path, body, settings)

    @_answer.register
    def _(self, request: requests.BlobRequest, settings: Settings) -> answers.BlobAnswer:
        kind, _, name = request.type_name.rpartition(":")
        query = {
            "entity": kind or "node",
            "type": name,
            "id": request.entity_id,
            "property": request.property,
            "branch": request.branch,
            "snapshot": request.snapshot,
        }
        start, end = request.start, request.end
        in_order = start >= 0 and (end is None or start <= end)
        whole = start == 0 and end is None
        empty = request.with_data and start == end
        reads = request.with_data and not empty and in_order
        ranged = () if whole or not reads else (("Range", f"bytes={start}-{'' if end is None else end - 1}"),)
        path = self._path("/blob", query)
        message = Message("GET" if reads else "HEAD", path, headers=ranged, expected=(200, 206, 302))
        try:
            reply = self._server.send(message, settings)
        except (NetworkError, CancelledError):
            raise
        except OmnigraphError:
            if not reads:  # an answer to HEAD has no body: ask for the reason
                self._server.send(Message("GET", path, headers=_FIRST_BYTE, expected=(200, 206, 302)), settings)
            raise
        try:
            found = _blob(reply, with_data=reads)
        except UNREADABLE as error:
            raise strange_answer(writes=False) from error
        if found.size is not None and (not in_order or (end is not None and end > found.size) or start > found.size):
            raise BlobRangeError(start, end, found.size)
        return replace(found, data=b"") if empty and found.uri is None else found

    # Messages

    def _path(self, path: str, query: Mapping[str, Any]) -> str:
        if self._graph_id is None and not self._is_graph:
            raise ConfigurationError(
                "the call needs a graph, and the client has none",
                hint="give graph_id= to connect(), or use client.graph(ID)",
            )
        given = {name: value for name, value in query.items() if value is not None}
        graph = "" if self._graph_id is None else f"/graphs/{self._graph_id}"
        return f"{graph}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")

    def _post(self, path: str, body: Mapping[str, Any], *, writes: bool = False) -> Message:
        return Message("POST", self._path(path, {}), _encoded(body), JSON_BODY, writes=writes)

    def _get(self, path: str, query: Mapping[str, Any], settings: Settings, read: Callable[[Any], T]) -> T:
        return self._json(Message("GET", self._path(path, query)), settings, read)

    def _json(self, message: Message, settings: Settings, read: Callable[[Any], T]) -> T:
        body = self._server.send(message, settings).body
        try:
            return read(orjson.loads(body))
        except UNREADABLE as error:
            raise strange_answer(writes=message.writes) from error

    def _read(self, path: str, body: Mapping[str, Any], settings: Settings) -> Result:
        headers = (*JSON_BODY, ("Accept", ARROW))
        reply = self._server.send(Message("POST", self._path(path, {}), _encoded(body), headers), settings)
        return _result(reply)

    def _write(
        self,
        path: str,
        body: Mapping[str, Any],
        request: LoadRequest | MergeRequest | MutateRequest,
        settings: Settings,
        read: Callable[[Any], T],
        headers: tuple[tuple[str, str], ...] = (),
    ) -> T:
        headers = (*JSON_BODY, *_key(request.idempotency_key), *headers)
        return self._json(Message("POST", self._path(path, {}), _encoded(body), headers, writes=True), settings, read)

    def _conditional(
        self, path: str, body: Mapping[str, Any], request: MutateRequest, settings: Settings
    ) -> MutationReceipt:
        if request.expect_head is None:
            return self._write(path, body, request, settings, answers.mutation)
        headers = (("Omnigraph-If-Graph-Commit", _header("if_graph_commit", request.expect_head)),)
        return self._write(f"{path}/if-graph-commit", body, request, settings, answers.mutation, headers)


_FILTERS = {"kinds": "kind", "types": "type", "ops": "op"}
_LOAD = {
    "mode": "mode",
    "branch": "branch",
    "base": "from",
    "message": "message",
    "labels": "labels",
}


@contextmanager
def _showing(text: str) -> Iterator[None]:
    """Errors of compilation show the line of the text that was sent."""
    try:
        yield
    except CompileError as error:
        error.source = SourceText(text)
        raise


def _members(request: Any, names: Mapping[str, str], *, keyed: bool = False) -> dict[str, Any]:
    """The fields of a request as members of a body. Fields that have their default are left out.

    Args:
        request: a request dataclass.
        names: the member of each field that the server takes.
        keyed: whether the idempotency key is sent as a header.

    Raises:
        ConfigurationError: a field that the server does not take has another value than its default.
    """
    found: dict[str, Any] = {}
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name in names:
            if value != field.default:
                found[names[field.name]] = _plain(field.name, value)
        elif field.name in _IN_PLACE or (keyed and field.name == "idempotency_key"):
            allowed = _IN_PLACE.get(field.name)
            if allowed is not None and value not in allowed:
                raise _not_sent(field.name, value)
        elif value != field.default:
            raise _not_sent(field.name, value)
    return found


def _plain(name: str, value: Any) -> Any:
    if name == "at":
        return _state(value)
    return dict(value) if isinstance(value, Mapping) else value


def _not_sent(name: str, value: object) -> ConfigurationError:
    return ConfigurationError(
        f"a server does not take the option {name}={shown(value)}",
        hint="leave it out, or open the graph in this process",
    )


def _listed(request: Any, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Fields that are one text or several, as lists."""
    found: dict[str, list[str]] = {}
    for name, member in names.items():
        value: str | Sequence[object] | None = getattr(request, name, None)
        if value is not None and name != "branch":
            found[member] = [str(value)] if isinstance(value, str) else [str(one) for one in value]
    return found


def _is_empty(request: Any) -> bool:
    """Whether a request exports no types. For the server, an empty list stands for all of them."""
    export = request.request if isinstance(request, requests.ExportParts) else request
    return isinstance(export, ExportRequest) and export.types is not None and len(export.types) == 0


def _query(request: QueryRequest) -> dict[str, Any]:
    body = _members(
        request,
        {"text": "query", "params": "params", "name": "name", "branch": "branch", "at": "snapshot", "budget": "budget"},
    )
    body.setdefault("name", None)
    if request.budget is not None:
        names = ("seconds", "memory", "rows", "returned")
        body["budget"] = {name: getattr(request.budget, name) for name in names}
    return body


def _mutation(request: MutateRequest) -> dict[str, Any]:
    names = ("params", "name", "branch", "message", "labels")
    body = _members(request, {name: name for name in names} | {"text": "query", "expect_head": ""}, keyed=True)
    body.pop("", None)
    body.setdefault("name", None)
    return body


def _state(at: object) -> str | None:
    """The commit that a request names.

    Raises:
        ConfigurationError: it names a time or a manifest version.
    """
    if isinstance(at, Snapshot):
        return at.commit.id
    if at is None or isinstance(at, str):
        return at
    raise ConfigurationError(
        f"a server does not read the state at={shown(at)}", hint="give the id of a commit, or the name of a tag"
    )


def _resolution(conflict: Conflict | tuple[str, str], side: Strategy | str) -> dict[str, str]:
    key, entity = (conflict.type_key, str(conflict.entity_id)) if isinstance(conflict, Conflict) else conflict
    kind, _, name = key.partition(":")
    return {"entity_kind": kind, "type_name": name, "entity_id": entity, "side": Strategy(side).value}


def _key(key: str | None) -> tuple[tuple[str, str], ...]:
    return () if key is None else (("Idempotency-Key", _header("idempotency_key", key)),)


def _header(name: str, value: str) -> str:
    """A value that is sent as a header.

    Raises:
        ConfigurationError: a header cannot have this value.
    """
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise ConfigurationError(
            f"{name}={shown(value)} cannot be sent to a server", hint="use letters, digits and punctuation of ASCII"
        )
    return value


def _text_of(data: bytes) -> str:
    """The text of an input, because `/load` takes a JSON document.

    Raises:
        BadRowsError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        record = sum(1 for line in data[: error.start].split(b"\n")[:-1] if line.strip()) + 1
        place = f"record {record}"
        raise BadRowsError((Problem(record, place, "input", "the text is not UTF-8"),), 1) from None


def _encoded(body: Mapping[str, Any]) -> bytes:
    """A body as JSON."""
    given = dict(body)
    if given.get("params") is not None:
        given["params"] = parameters_json(given["params"])
    try:
        return orjson.dumps(given)
    except (orjson.JSONEncodeError, TypeError) as error:
        raise ConfigurationError(f"a value cannot be sent as JSON: {error}") from None


def _result(reply: Reply) -> Result:
    """The result of a query, from an Arrow stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(reply.body)) as reader:
            table = reader.read_all()
        members = orjson.loads(table.schema.metadata[b"omnigraph"])
        return Result(
            query_name=members["query_name"],
            branch=members["target"]["branch"],
            snapshot=members["target"]["snapshot"],
            graph_commit_id=members["graph_commit_id"],
            _table=table.replace_schema_metadata(None),
            _network=None,
            warnings=tuple(members.get("warnings") or ()),
        )
    except UNREADABLE as error:  # also those of Arrow
        raise strange_answer(writes=False) from error


def _blob(reply: Reply, *, with_data: bool) -> answers.BlobAnswer:
    """The blob of an answer."""
    view, commit = (reply.headers.get(name) for name in ("omnigraph-snapshot-id", "omnigraph-graph-commit-id"))
    view = None if view is None else unquote(view)
    if reply.status == 302:
        return answers.BlobAnswer(None, None, reply.headers["location"], view, commit)
    size = int(reply.headers.get("content-range", reply.headers["content-length"]).rpartition("/")[2])
    data = reply.body if with_data else None
    return answers.BlobAnswer(size, reply.headers["etag"], None, view, commit, data)


def _lines(parts: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    """The lines of a stream, each with its line break. Closing it closes the stream."""
    rest: list[bytes] = []
    try:
        for part in parts:
            lines = part.splitlines(keepends=True)
            for line in lines:
                if line.endswith(b"\n"):
                    yield b"".join([*rest, line])
                    rest = []
                else:
                    rest.append(line)
        if rest:
            yield b"".join(rest)
    finally:
        parts.close()
