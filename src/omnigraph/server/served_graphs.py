"""The graphs of a server: their sessions, policies and stored queries."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path

from omnigraph.commit.manifest import MAIN
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import AccessPolicy
from omnigraph.engine.opening import open_session
from omnigraph.engine.session import Session
from omnigraph.errors import ForbiddenError, InputError, NotFoundError, OmnigraphError, PolicyError, cut
from omnigraph.policy.bundle import Bundle
from omnigraph.server.authorize import Authorizer, DefaultDeny, Open
from omnigraph.server.policy_files import read_policy
from omnigraph.server.stored_queries import StoredQueries
from omnigraph.storage.lru_cache import LruCache

OPEN_AT_ONCE = 4
"""Number of graphs that are opened at the same time."""

_SESSIONS = 256
"""Maximum number of cached sessions of a graph."""

_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_RESERVED = ("policies", "healthz", "openapi", "graphs")
_log = logging.getLogger("omnigraph.server")


def check_graph_id(graph_id: str) -> None:
    """Check the id of a graph.

    Raises:
        InputError: it is reserved, too long, or has other characters than letters, digits and `-`.
    """
    if not _ID.fullmatch(graph_id):
        raise InputError(
            f"'{cut(graph_id)}' is not the id of a graph", hint="use 1 to 64 letters, digits and '-' as an id"
        )
    if graph_id in _RESERVED:
        raise InputError(f"'{graph_id}' cannot be the id of a graph", hint="choose another id")


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """A graph to serve.

    Attributes:
        uri: its storage.
        queries: the directory of its stored queries.
        blob_sources: the allowed locations of external blobs.
        policy: the file of its policy.
    """

    uri: str
    queries: Path | None = None
    blob_sources: tuple[str, ...] = ()
    policy: Path | None = None


@dataclass(slots=True)
class ServedGraph:
    """An open graph.

    Sessions of actors without a policy are cached.

    Attributes:
        session: the session of the whole graph. `acting` returns that of an actor.
        authorizer: decides the requests. A reload replaces it if it is a policy of a file.
        queries: its stored queries. A reload replaces them.
    """

    id: str
    config: GraphConfig
    session: Session
    authorizer: Authorizer
    queries: StoredQueries
    _sessions: LruCache[Session] = field(default_factory=lambda: LruCache(_SESSIONS))

    def acting(self, actor: str | None) -> Session:
        """The session of an actor, which obeys the policy. It shares the store. Reads the head of `main`.

        Raises:
            ForbiddenError: the policy does not fit the schema of the graph.
        """
        policy = self.authorizer
        if isinstance(policy, Open | DefaultDeny):
            return self._sessions.get(actor) or self._sessions.put(actor, self._recorded_as(actor))
        if isinstance(policy, AccessPolicy):
            try:
                return self.session.bound_to(policy, actor)
            except PolicyError as error:
                _log.error("a policy does not fit", extra={"fields": {"graph": self.id, "reason": error.render()}})
                raise ForbiddenError("the policy of this graph does not fit its schema") from None
        return self._recorded_as(actor)

    def _recorded_as(self, actor: str | None) -> Session:
        """A session of the whole graph that records an actor as the author of commits."""
        bound = copy.copy(self.session)
        bound.actor = actor
        return bound

    def limits(self, actor: str | None) -> bool:
        """Whether an actor may see only a part of the graph."""
        return actor is not None and isinstance(self.authorizer, AccessPolicy) and self.authorizer.limits(actor)

    @property
    def denies_writes(self) -> bool:
        """Whether no rule of its policy allows a write."""
        bundle = getattr(self.authorizer, "bundle", None)
        return isinstance(bundle, Bundle) and not bundle.allows_writes

    def reload(self) -> None:
        """Read the policy and the stored queries again. If one is invalid, the old ones stay."""
        if self.config.policy is not None:
            try:
                self.authorizer = _policy(self.config.policy, self.id, self.session)
            except OmnigraphError as error:
                fields = {"graph": self.id, "reason": error.render()}
                _log.error("the policy was not reloaded", extra={"fields": fields})
        try:
            self.queries = StoredQueries.of_directory(self.config.queries, self.session)
        except OmnigraphError as error:
            fields = {"graph": self.id, "reason": error.render()}
            _log.error("stored queries were not reloaded", extra={"fields": fields})


def _policy(path: Path, graph_id: str, session: Session) -> Authorizer:
    """The policy of a file, checked against the schema of a graph.

    Raises:
        PolicyError: the file is not valid, or does not fit the schema.
    """
    policy = read_policy(path, graph_id)
    policy.check(session.schemas.version_of(session.store.capture(MAIN))[1], session.former_schemas)
    return policy


class ServedGraphs:
    """The graphs of a server by id, without those that could not be opened.

    Attributes:
        quarantined: the graphs that are not served, with the reasons.
    """

    def __init__(self, graphs: Mapping[str, ServedGraph], quarantined: Mapping[str, str]) -> None:
        self._graphs = dict(sorted(graphs.items()))
        self.quarantined = dict(sorted(quarantined.items()))

    @classmethod
    def open(
        cls, configs: Mapping[str, GraphConfig], authorizers: Mapping[str, Authorizer], *, require_all: bool = False
    ) -> ServedGraphs:
        """Open graphs. A graph that cannot be opened is quarantined.

        Args:
            configs: the graphs by id.
            authorizers: the authorizer of each graph without the file of a policy.
            require_all: raise the error of a graph that cannot be opened.

        Raises:
            InputError: an id is invalid, or no graph can be opened.
        """
        for graph_id in configs:
            check_graph_id(graph_id)

        def open_one(graph_id: str) -> ServedGraph:
            config = configs[graph_id]
            session = open_session(config.uri, blob_sources=config.blob_sources)
            try:
                authorizer = authorizers[graph_id]
                if config.policy is not None:
                    authorizer = _policy(config.policy, graph_id, session)
                queries = StoredQueries.of_directory(config.queries, session)
            except BaseException:
                session.close()
                raise
            for query in queries:
                for warning in query.warnings():
                    _log.warning(warning, extra={"fields": {"graph": graph_id}})
            return ServedGraph(graph_id, config, session, authorizer, queries)

        graphs: dict[str, ServedGraph] = {}
        failed: dict[str, OmnigraphError] = {}
        with ThreadPoolExecutor(OPEN_AT_ONCE, "omnigraph-open") as pool:
            jobs = {graph_id: pool.submit(open_one, graph_id) for graph_id in configs}
            for graph_id, job in jobs.items():
                try:
                    graphs[graph_id] = job.result()
                except OmnigraphError as error:
                    failed[graph_id] = error
        served = cls(graphs, {graph_id: error.render() for graph_id, error in failed.items()})
        if failed and (require_all or not graphs):
            served.close()
            raise next(iter(failed.values()))
        for graph_id, reason in served.quarantined.items():
            _log.error("a graph is not served", extra={"fields": {"graph": graph_id, "reason": reason}})
        if not graphs:
            raise InputError("there are no graphs to serve", hint="name one with --store, or several in a file")
        return served

    def get(self, graph_id: str) -> ServedGraph:
        """A graph.

        Raises:
            InputError: the id is malformed.
            NotFoundError: there is no such graph, or it is quarantined.
        """
        check_graph_id(graph_id)
        found = self._graphs.get(graph_id)
        if found is None:
            raise NotFoundError(f"there is no graph '{graph_id}'")
        return found

    def all(self) -> list[ServedGraph]:
        """The graphs, by id."""
        return list(self._graphs.values())

    def reload(self) -> None:
        """Read the policies and stored queries of all graphs again."""
        for graph in self.all():
            graph.reload()

    def close(self) -> None:
        for graph in self.all():
            graph.session.close()
