"""Connect to a graph: on a server, or in this process."""

# See docs/decisions/0321-one-set-of-members-for-all-clients.md

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

from omnigraph.client.call_threads import CallThreads
from omnigraph.client.clients import AsyncGraphClient, GraphClient
from omnigraph.client.protocol import Backend, Settings
from omnigraph.errors import ConfigurationError, InputError

SERVER_VERSION = version("omnigraph")
"""The release of the server that this client knows. Compare its first two numbers with `client.health().version`."""


def connect(
    address: str | os.PathLike[str],
    *,
    token: str | None = None,
    graph_id: str | None = None,
    timeout: float | None = None,
    **options: Any,
) -> GraphClient:
    """Connect to a graph.

    Args:
        address: `http://…` or `https://…` for a server; a directory or `s3://bucket/prefix` for a graph that is opened
            in this process.
        token: the bearer token of a server.
        graph_id: the graph of a server. Without it, only `health` and `graphs.list` work.
        timeout: seconds after which each call fails; by default none.
        options: for a graph in this process, the keyword arguments of `omnigraph.open`.

    Example:
        >>> import omnigraph, tempfile
        >>> directory = tempfile.mkdtemp() + "/g"
        >>> omnigraph.init(directory, "node Person { name: String @key }").close()
        >>> with omnigraph.connect(directory) as client:
        ...     _ = client.mutate('query q() { insert Person { name: "ann" } }')
        ...     client.query("query q() { match { $p: Person } return { $p.name as name } }").to_pylist()
        [{'name': 'ann'}]

    Raises:
        ConfigurationError: the arguments do not fit the address.
        NotFoundError: there is no graph in this directory.
    """
    return GraphClient(_backend(address, token, graph_id, options), Settings(timeout))


def connect_async(
    address: str | os.PathLike[str],
    *,
    token: str | None = None,
    graph_id: str | None = None,
    timeout: float | None = None,
    **options: Any,
) -> AsyncGraphClient:
    """As `connect`, for programs with asyncio: `async with omnigraph.connect_async(…) as client`. It sends nothing."""
    return AsyncGraphClient(_backend(address, token, graph_id, options), Settings(timeout))


def connect_to_graph_address(address: str, *, token: str | None = None, timeout: float | None = None) -> GraphClient:
    """Connect to the graph of a server that has an address of its own, such as `https://HOST/graphs/ID`.

    Raises:
        ConfigurationError: this is no address of a server.
    """
    threads = CallThreads()
    return GraphClient(_remote(address, token, None, threads, is_graph=True), Settings(timeout))


def _backend(
    address: str | os.PathLike[str], token: str | None, graph_id: str | None, options: dict[str, Any]
) -> Backend:
    threads = CallThreads()
    if isinstance(address, str) and address.lower().startswith(("http:", "https:")):
        if options:
            raise ConfigurationError(f"a server does not take the option {next(iter(options))}")
        return _remote(address, token, graph_id, threads)
    if token is not None or graph_id is not None:
        raise ConfigurationError(
            "token and graph_id belong to a server, and the address is that of a directory or an object store",
            hint="give the address of a server, http://HOST:PORT",
        )
    from omnigraph.client.embedded import Embedded
    from omnigraph.graph.graph import open as open_graph

    return Embedded(open_graph(address, **options).session, threads)


def _remote(
    address: str, token: str | None, graph_id: str | None, threads: CallThreads, *, is_graph: bool = False
) -> Backend:
    try:
        from omnigraph.client.http import Server
    except ModuleNotFoundError as error:
        if error.name != "urllib3":
            raise
        raise InputError("urllib3 is not installed", hint="pip install 'omnigraph[client]'") from error
    from omnigraph.client.remote import Remote

    return Remote(Server(address, token), graph_id, threads, is_graph=is_graph)
