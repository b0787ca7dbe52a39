"""The state of one worker: graphs, identity, policies, limits, threads and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from omnigraph.errors import InputError, OmnigraphError, ResourceLimitError
from omnigraph.server.admission import Admission
from omnigraph.server.authorize import AccessState, Authorizer, DefaultDeny, Open
from omnigraph.server.identity import Identity
from omnigraph.server.metrics import Metrics
from omnigraph.server.options import Limits
from omnigraph.server.policy_files import read_server_policy
from omnigraph.server.served_graphs import GraphConfig, ServedGraphs
from omnigraph.server.work import Pools

_log = logging.getLogger("omnigraph.server")

_STREAM_BYTES = 256 * 1024
"""Memory that one export may take while its client reads."""

_NO_WRITES = "every write is denied: there are tokens, but no policy"
_OPEN = "everyone who reaches this server may read and write: it has no tokens"


class Service:
    """The state that all requests of a worker share.

    Args:
        graphs: the graphs.
        identity: the credentials.
        policies: the authorizers of graphs by id. Graphs without one allow only reads, if there are credentials.
        server_policy: the authorizer of the server itself, which allows the list of graphs; or the file of a policy.
        unauthenticated: whether the server may run without credentials.
        limits: the limits.
        require_all: whether all graphs have to be served.

    Attributes:
        state: how requests are decided.
        draining: whether the server is about to stop.

    Raises:
        InputError: there are no credentials and `unauthenticated` is false, there are policies without credentials, or
            no graph can be opened.
    """

    def __init__(
        self,
        graphs: Mapping[str, GraphConfig],
        *,
        identity: Identity,
        policies: Mapping[str, Authorizer] | None = None,
        server_policy: Authorizer | Path | None = None,
        unauthenticated: bool = False,
        limits: Limits | None = None,
        require_all: bool = False,
    ) -> None:
        policies = policies or {}
        with_policy = {*policies, *(graph_id for graph_id, config in graphs.items() if config.policy is not None)}
        self.identity = identity
        self.limits = limits or Limits()
        self.state = _state(identity, bool(with_policy) or server_policy is not None, unauthenticated)
        without: Authorizer = Open() if self.state is AccessState.OPEN else DefaultDeny()
        self._server_policy = server_policy if isinstance(server_policy, Path) else None
        if isinstance(server_policy, Path):
            server_policy = read_server_policy(server_policy)
        self.authorizer: Authorizer = server_policy or without
        authorizers = {graph_id: policies.get(graph_id, without) for graph_id in graphs}
        self.graphs = ServedGraphs.open(graphs, authorizers, require_all=require_all)
        for graph in self.graphs.all():
            if self.state is AccessState.POLICY_ENABLED and isinstance(graph.authorizer, DefaultDeny):
                _log.warning("a graph has no policy: every write is denied", extra={"fields": {"graph": graph.id}})
            if graph.denies_writes:
                _log.warning("no rule of a policy allows a write", extra={"fields": {"graph": graph.id}})
        self.admission = Admission(self.limits)
        self.pools = Pools(self.limits)
        self.metrics = Metrics()
        self.draining = False
        self._exports = asyncio.Semaphore(self.limits.streams)

    @property
    def warnings(self) -> list[str]:
        """Warnings for the operator, for the log and for `/readyz`, which is public: they name no graph."""
        found = []
        if self.state is AccessState.OPEN:
            found.append(_OPEN)
        if self.state is AccessState.DEFAULT_DENY:
            found.append(_NO_WRITES)
        if self.state is AccessState.POLICY_ENABLED:
            graphs = self.graphs.all()
            without = sum(isinstance(graph.authorizer, DefaultDeny) for graph in graphs)
            if without:
                found.append(f"every write to {without} of the graphs is denied: they have no policy")
            read_only = sum(graph.denies_writes for graph in graphs)
            if read_only:
                found.append(
                    f"every write to {read_only} of the graphs is denied: no rule of their policies allows one"
                )
        if self.graphs.quarantined:
            number = len(self.graphs.quarantined)
            found.append(f"{number} {'graph is' if number == 1 else 'graphs are'} not served; the log has the reasons")
        return found

    def export_slot(self) -> AbstractAsyncContextManager[None]:
        """One of the slots of exports, for the duration of a `with` block. Raises the error below when it is entered.

        Raises:
            ResourceLimitError: no slot becomes free in time.
        """
        return self._export_slot()

    @asynccontextmanager
    async def _export_slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.limits.stream_wait):
                await self._exports.acquire()
        except TimeoutError:
            total = self.limits.streams * _STREAM_BYTES
            raise ResourceLimitError(
                "stream_export_transport_bytes",
                total,
                total + _STREAM_BYTES,
                hint="other exports are running; send it again when one of them has ended",
            ) from None
        try:
            yield
        finally:
            self._exports.release()

    def reload(self) -> None:
        """Read the credentials, the policies and the stored queries again."""
        self.identity.reload()
        if self._server_policy is not None:
            try:
                self.authorizer = read_server_policy(self._server_policy)
            except OmnigraphError as error:
                _log.error("the policy of the server was not reloaded", extra={"fields": {"reason": error.render()}})
        self.graphs.reload()

    def close(self) -> None:
        """Wait for running work, and close the graphs."""
        self.pools.close()
        self.graphs.close()


def _state(identity: Identity, has_policy: bool, unauthenticated: bool) -> AccessState:
    """How requests are decided.

    Raises:
        InputError: the combination is not allowed.
    """
    if identity.is_configured:
        return AccessState.POLICY_ENABLED if has_policy else AccessState.DEFAULT_DENY
    if has_policy:
        raise InputError("there is a policy, but no bearer tokens", hint="configure tokens, or remove the policy")
    if not unauthenticated:
        raise InputError(
            "the server has no bearer tokens",
            hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or allow everyone with --unauthenticated",
        )
    return AccessState.OPEN
