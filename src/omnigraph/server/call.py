"""One request: its graph, actor and body, and the way in which its work runs."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from omnigraph.engine.access import FIND_DENIAL, AccessPolicy, Action, Denial
from omnigraph.engine.session import Session
from omnigraph.errors import ForbiddenError, InputError, MediaTypeError, ResourceLimitError, cut
from omnigraph.errors.access import denied_text
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.budget.budget import default_budget
from omnigraph.server.bodies import BudgetBody
from omnigraph.server.options import LEAST_RATE
from omnigraph.server.query_parameters import QueryParameter
from omnigraph.server.served_graphs import ServedGraph
from omnigraph.server.streaming import CHUNK_BYTES, Stream, chunked
from omnigraph.server.work import UNLIMITED, Deadline, limited, run

if TYPE_CHECKING:
    from omnigraph.server.service import Service

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)

CONDITION = "omnigraph-if-graph-commit"
"""The header of conditional writes: the commit that has to be the head of the branch."""

IDEMPOTENCY_KEY = "idempotency-key"

BODY_IS_COMPLETE = "body_is_complete"
"""In the state of a request: the protocol has received the whole body, so that nobody has to wait for it."""

SUCCESSOR = "successor"
"""In the state of a request: the address of the replacement of a deprecated query."""

_COMMIT_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_BRANCH_BYTES = 256
"""Estimated size of a write of a branch, for admission."""

_log = logging.getLogger("omnigraph.server")


class Takes(Protocol):
    """The inputs of an operation. `Operation` documents them."""

    @property
    def query(self) -> Sequence[QueryParameter]: ...

    @property
    def conditional(self) -> bool: ...

    @property
    def idempotent(self) -> bool: ...

    @property
    def large(self) -> bool: ...


class Call:
    """One request to an operation.

    Attributes:
        actor: the actor, from the credential; None if the server has no credentials.
        headers: the first value of each header, by its name in lower case.
        received: the number of bytes of the body that have been received.
        cancel: cancelled when the client leaves.
        deadline: the time limit of reads.
    """

    def __init__(self, service: Service, operation: Takes, request: Request, actor: str | None) -> None:
        self.service = service
        self.operation = operation
        self.request = request
        self.actor = actor
        self.headers = first_values(request.scope["headers"])
        self.received = 0
        self.cancel = Cancellation()
        self.deadline = Deadline(service.limits.request_seconds)
        self._denials: list[Callable[[], None]] = []
        self._graph: ServedGraph | None = None
        if "graph_id" in request.path_params:
            self._graph = service.graphs.get(request.path_params["graph_id"])

    @property
    def graph(self) -> ServedGraph:
        """The graph that the path names."""
        assert self._graph is not None, "the route has no graph"
        return self._graph

    @property
    def request_id(self) -> str:
        return str(self.request.scope["state"]["request_id"])

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])

    def deprecate(self, successor: str) -> None:
        """Mark the answer as that of a deprecated query.

        Args:
            successor: the address of its replacement, relative to the path; empty if there is none.
        """
        self.request.scope["state"][SUCCESSOR] = successor

    # Query parameters and headers

    def query(self, name: str) -> str | None:
        """A query parameter."""
        return self.request.query_params.get(name)

    def queries(self, name: str) -> list[str] | None:
        """All values of a query parameter that may be repeated; None if there are none."""
        return self.request.query_params.getlist(name) or None

    def number(self, name: str) -> int | None:
        """A query parameter that is a whole number.

        Raises:
            InputError: it is not a whole number.
        """
        text = self.query(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise InputError(f"{name}: '{cut(text)}' is not a whole number of at most 18 digits")
        return int(text)

    def check(self) -> None:
        """Check the query parameters and headers that the operation does not take.

        Raises:
            InputError: a parameter is unknown or repeated, or a header is missing or not allowed.
        """
        if self.operation.query or self.request.scope["query_string"]:
            self._check_query()
        self._check_header(CONDITION, self.operation.conditional, required=self.operation.conditional)
        self._check_header(IDEMPOTENCY_KEY, self.operation.idempotent, required=False)

    def _check_query(self) -> None:
        declared = {one.name: one for one in self.operation.query}
        given = self.request.query_params
        for name in given:
            if name not in declared:
                known = ", ".join(declared) or "none"
                raise InputError(f"unknown query parameter '{cut(name)}'", hint=f"this route takes: {known}")
            if len(given.getlist(name)) > 1 and not declared[name].repeated:
                raise InputError(f"the query parameter '{name}' is given more than once", hint="give it once")
        for name, parameter in declared.items():
            if parameter.required and name not in given:
                raise InputError(f"the query parameter '{name}' is missing")

    def _check_header(self, name: str, taken: bool, *, required: bool) -> None:
        if name not in self.headers and not required:
            return
        given = self.request.headers.getlist(name)
        title = "-".join(part.capitalize() for part in name.split("-"))
        if given and not taken:
            raise InputError(f"this route does not take the header {title}", hint="send the request without it")
        if len(given) > 1:
            raise InputError(f"the header {title} is given more than once", hint="give it once")
        if required and not given:
            raise InputError(f"the header {title} is missing", hint="give the id of the commit that you have read")

    def condition(self) -> str | None:
        """The commit that has to be the head of the branch.

        Raises:
            InputError: the header is not the id of a commit.
        """
        if not self.operation.conditional:
            return None
        text = self.request.headers[CONDITION].strip()
        if not _COMMIT_ID.fullmatch(text):
            raise InputError(
                f"Omnigraph-If-Graph-Commit: '{cut(text)}' is not the id of a commit",
                hint="give 'graph_commit_id' of a query or of a commit, without quotes",
            )
        return text

    def idempotency_key(self) -> str | None:
        """The idempotency key of a write."""
        return self.headers.get(IDEMPOTENCY_KEY)

    def accepts(self, *types: str) -> str:
        """The media type that the header `Accept` prefers. The first one is the default."""
        if "accept" not in self.headers:
            return types[0]
        given: dict[str, tuple[float, int]] = {}
        for place, part in enumerate(",".join(self.request.headers.getlist("accept")).split(",")):
            name, *parameters = (piece.strip().lower() for piece in part.split(";"))
            quality = next((_quality(one[2:]) for one in parameters if one.startswith("q=")), 1.0)
            given.setdefault(name, (quality, -place))

        def preference(media: str) -> tuple[float, int]:
            ranges = (media, f"{media.partition('/')[0]}/*", "*/*")
            return next((given[name] for name in ranges if name in given), (0.0, 0))

        return max(types, key=preference)

    # Body

    async def raw_body(self, limit: int, resource: str = "http_body_bytes") -> bytes:
        """The bytes of the body.

        Raises:
            MediaTypeError: the body is compressed.
            ResourceLimitError: the body is too large.
            TooManyRequestsError: the bodies and writes of the actor are too large together.
            InputError: the client stopped sending it, or sends it too slowly.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise MediaTypeError(
                f"the body has the encoding '{cut(encoding)}'", hint="send it without Content-Encoding"
            )
        hint = "send it in several requests"
        length = self.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise ResourceLimitError(resource, limit, int(length), hint=hint)
        parts: list[bytes] = []
        stream = self.request.stream()
        loop, patience = asyncio.get_running_loop(), self.service.limits.header_seconds
        with self.service.admission.body(self.actor, int(length) if length.isdecimal() else limit):
            if self.request.scope["state"].get(BODY_IS_COMPLETE):
                return await self._complete_body(limit, resource, hint)
            try:
                begun = loop.time()
                while True:
                    # The next part has its time, and the body as a whole has to arrive at the least rate.
                    latest = min(loop.time(), begun + self.received / LEAST_RATE) + patience
                    async with asyncio.timeout_at(latest):
                        part = await anext(stream, None)
                    if part is None:
                        return b"".join(parts)
                    self.received += len(part)
                    if self.received > limit:
                        raise ResourceLimitError(resource, limit, self.received, hint=hint)
                    parts.append(part)
            except TimeoutError:
                raise InputError("the body of the request did not arrive in time") from None

    async def _complete_body(self, limit: int, resource: str, hint: str) -> bytes:
        """The body, which has been received. Its message is there, so no time limit is needed."""
        message = await self.request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        raw: bytes = message["body"]
        self.received = len(raw)
        if self.received > limit:
            raise ResourceLimitError(resource, limit, self.received, hint=hint)
        return raw

    def check_media_type(self, *allowed: str) -> None:
        """Check the media type of the body.

        Raises:
            MediaTypeError: it is another one.
        """
        given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if given not in allowed:
            raise MediaTypeError(
                f"the body has the media type '{cut(given)}'", hint=f"send it as Content-Type: {allowed[0]}"
            )

    async def body(self, model: type[B], *, optional: bool = False) -> B:
        """The JSON body.

        Args:
            model: its members.
            optional: whether there may be no body.

        Raises:
            InputError: the body is not such a JSON object.
        """
        limits = self.service.limits
        large = self.operation.large
        resource = "graph_batch_request_bytes" if large else "http_body_bytes"
        if "content-type" in self.headers:
            self.check_media_type("application/json")
        raw = await self.raw_body(limits.load_body if large else limits.body, resource)
        if not raw and optional:
            raw = b"{}"
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            message = first["msg"]
            raise InputError(f"body: {place}: {message}" if place else f"body: {message}") from None

    # Authorisation

    def is_allowed(self, action: Action, branch: str | None = None, target_branch: str | None = None) -> bool:
        """Whether the policy allows an action. The decision is logged."""
        return self._decide(action, branch, target_branch) is None

    def authorize(
        self,
        action: Action,
        branch: str | None = None,
        target_branch: str | None = None,
        *,
        names_branch: bool = True,
    ) -> None:
        """Check that the policy allows an action.

        Args:
            action: the action.
            branch: the branch that is read, or that is the source.
            target_branch: the branch that is created, deleted or merged into.
            names_branch: whether the error may name `branch`. It must not if the request names a commit only.

        Raises:
            ForbiddenError: it does not.
        """
        refusal = self._decide(action, branch, target_branch)
        if refusal is not None:
            shown = branch if names_branch else None
            raise ForbiddenError(denied_text(self.actor, action.value, shown, target_branch), hint=refusal)

    def _decide(self, action: Action, branch: str | None, target: str | None) -> str | None:
        """The reason why an action is denied; None if it is allowed."""
        authorizer = self.service.authorizer if self._graph is None else self._graph.authorizer
        decision = authorizer.decide(self.actor, action, branch, target)
        fields = {
            "request_id": self.request_id,
            "graph": None if self._graph is None else self._graph.id,
            "actor": self.actor,
            "action": action.value,
            "branch": branch,
            "target_branch": target,
            "allowed": decision.allowed,
            "rule": decision.rule,
        }
        if decision.allowed:
            _log.debug("policy decision", extra={"fields": fields})
            return None
        _log.info("policy decision", extra={"fields": fields})
        self.service.metrics.denied.labels(action.value).inc()
        if isinstance(authorizer, AccessPolicy):
            place = "server" if self._graph is None else self._graph.session.uri
            rule, message = decision.rule, decision.message
            denial = Denial(place, self.actor, action.value, branch, target, (), rule, message)
            self._denials.append(partial(authorizer.record, denial))
            return f"{message}; {FIND_DENIAL}"
        return decision.message or "the policy does not allow this"

    async def record_denials(self) -> None:
        """Record the denials of the policy in the audit, in a thread: it flushes each of them to disk."""
        for record in self._denials:
            await asyncio.to_thread(record)

    # Work

    def session(self) -> Session:
        """The session of the actor. Call it in a thread: it may read."""
        return self.graph.acting(self.actor)

    def budget(self, asked: BudgetBody | None = None) -> Budget:
        """The budget of a read that starts now: the limits of the server, or less if the client asks for less.

        Raises:
            BudgetExceededError: the request has waited too long.
        """
        limits, default = self.service.limits, default_budget()
        memory = default.memory if limits.request_memory is None else limits.request_memory
        made = replace(default, seconds=self.deadline.left(), memory=memory, returned=limits.request_rows)
        if asked is None:
            return made
        return replace(
            made,
            seconds=_least(made.seconds, asked.seconds),
            memory=_least(made.memory, asked.memory),
            rows=_least(made.rows, asked.rows),
            returned=_least(made.returned, asked.returned),
        )

    async def read(self, work: Callable[[Session], T]) -> T:
        """Run a read in a thread.

        Args:
            work: gets the session of the actor.

        Raises:
            TooManyRequestsError: the actor has too many reads in flight.
        """

        def limited_work() -> T:
            return limited(lambda: work(self.session()), self.budget(), self.cancel)

        with self.service.admission.read(self.actor):
            return await run(self.service.pools.reads, limited_work, self.cancel, self.request.receive)

    async def answer_read(self, work: Callable[[Session], Any]) -> Response:
        """Run a read, and answer with its JSON value. The value is encoded in the thread."""
        return await self.answer_text(lambda session: orjson.dumps(work(session)))

    async def answer_text(self, work: Callable[[Session], bytes | Iterator[bytes]]) -> Response:
        """Run a read, and answer with its JSON text. A long text is sent in parts, as fast as the client reads them.

        Until the last part is sent, the read counts as in flight: texts that wait for slow clients take memory.
        """

        def text() -> bytes | Iterator[bytes]:
            found = work(self.session())
            if isinstance(found, bytes):
                if len(found) <= CHUNK_BYTES:
                    return found
                found = iter((found,))
            return started(chunked(found))

        pools = self.service.pools
        with ExitStack() as held:
            held.enter_context(self.service.admission.read(self.actor))
            found = await run(
                pools.reads,
                lambda: limited(text, self.budget(), self.cancel),
                self.cancel,
                self.request.receive,
            )
            if isinstance(found, bytes):
                return json_response(found)
            kept = AsyncExitStack()
            kept.enter_context(held.pop_all())
            return Stream(found, pools.streams, "application/json", cancel=self.cancel, held=kept)
        raise AssertionError("the block always returns")

    async def answer_write(self, work: Callable[[Session], Any], size: int = _BRANCH_BYTES) -> Response:
        """Run a write, and answer with its JSON value."""
        return json_response(await self.write(lambda session: orjson.dumps(work(session)), size))

    async def write(self, work: Callable[[Session], T], size: int = _BRANCH_BYTES) -> T:
        """Run a write in a thread.

        Args:
            work: gets the session of the actor.
            size: estimated size of the write, for admission.

        Raises:
            TooManyRequestsError: the actor has too many writes in flight.
        """
        with self.service.admission.write(self.actor, size):
            return await run(self.service.pools.writes, lambda: work(self.session()), self.cancel, self.request.receive)

    async def stream(
        self,
        produce: Callable[[Session], Iterator[bytes]],
        media_type: str,
        *,
        export: bool = False,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> Stream:
        """Answer with the parts of an iterator. The first part is produced before the status is sent.

        Args:
            produce: makes the iterator; runs in a thread.
            media_type: the media type of the answer.
            export: whether it takes one of the slots of exports, and runs in their threads.
            headers: returns more headers, after `produce` has run.

        Raises:
            ResourceLimitError: all slots of exports are taken.
        """
        pools = self.service.pools

        def start() -> Iterator[bytes]:
            return started(chunked(produce(self.session())))

        async with AsyncExitStack() as held:
            held.enter_context(self.service.admission.read(self.actor))
            if export:
                await held.enter_async_context(self.service.export_slot())
            parts = await run(
                pools.exports if export else pools.reads,
                lambda: limited(start, UNLIMITED if export else self.budget(), self.cancel),
                self.cancel,
                self.request.receive,
            )
            pool = pools.exports if export else pools.streams
            return Stream(parts, pool, media_type, cancel=self.cancel, held=held.pop_all(), headers=headers())
        raise AssertionError("the block always returns")


def first_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The first value of each header, by its name.

    >>> first_values([(b"host", b"a"), (b"accept", b"b"), (b"host", b"c")])
    {'host': 'a', 'accept': 'b'}
    """
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1"), value.decode("latin-1"))
    return found


def started(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Produce the first part of an iterator, so that its errors come before the status of the answer."""
    first = next(parts, None)
    return iter(()) if first is None else _Rest(first, parts)


class _Rest:
    """An iterator with its first item put back."""

    def __init__(self, first: bytes, rest: Iterator[bytes]) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return next(self._rest)

    def close(self) -> None:
        """Close the iterator, so that it releases its resources."""
        close = getattr(self._rest, "close", None)
        if close is not None:
            close()


Number = TypeVar("Number", int, float)


def _least(most: Number | None, asked: Number | None) -> Number | None:
    if most is None or asked is None:
        return most if asked is None else asked
    return min(most, asked)


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0


def json_response(value: Any, status: int = 200) -> Response:
    """A response with a JSON value, or with bytes that already are JSON."""
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return Response(raw, status, media_type="application/json")
