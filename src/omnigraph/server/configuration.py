"""The configuration of a server: graphs from options or from a file."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.documents import Value, read_document
from omnigraph.server.app import create_app
from omnigraph.server.identity import Identity
from omnigraph.server.options import Limits
from omnigraph.server.served_graphs import GraphConfig, check_graph_id

DEFAULT_ID = "default"
"""The id of the graph that `--store` names."""

_SECTIONS = ("graphs", "server_policy")
_MEMBERS = ("store", "queries", "blob_sources", "policy")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The graphs and settings of a worker.

    Attributes:
        graphs: the graphs by id.
        server_policy: the file of the policy of the server itself.
    """

    graphs: tuple[tuple[str, GraphConfig], ...]
    unauthenticated: bool = False
    require_all: bool = False
    server_policy: Path | None = None


def read_graphs(path: Path) -> dict[str, GraphConfig]:
    """The graphs of a YAML file: `graphs: {id: uri}`, or `graphs: {id: {store: uri, policy: file}}`.

    Relative directories and files are relative to the file.

    Raises:
        InputError: the file cannot be read, or is not valid.
    """
    graphs = _document(path).get("graphs")
    if graphs is None:
        raise InputError(f"{path} has no graphs", hint="write graphs: {ID: STORE}")
    return {graph_id: _graph(path, graph_id, given) for graph_id, given in graphs.members().items()}


def read_server_policy_path(path: Path) -> Path | None:
    """The file that `server_policy` of a YAML file names. Raises the errors of `read_graphs`."""
    return _file(path, _document(path).get("server_policy"))


def _document(path: Path) -> dict[str, Value]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}") from None
    return read_document(raw, str(path)).members(_SECTIONS)


def _graph(path: Path, graph_id: str, given: Value) -> GraphConfig:
    check_graph_id(graph_id)
    members = {"store": given} if isinstance(given.content, str) else given.members(_MEMBERS)
    if "store" not in members:
        raise given.error("the graph has no store", "write store: with a path or an address")
    store = members["store"].text()
    sources = members.get("blob_sources")
    return GraphConfig(
        store if "://" in store else str(path.parent / store),
        _file(path, members.get("queries")),
        () if sources is None else tuple(one.text() for one in sources.items()),
        _file(path, members.get("policy")),
    )


def _file(path: Path, given: Value | None) -> Path | None:
    return None if given is None else path.parent / given.text()


def make_app(configuration: Configuration) -> FastAPI:
    """The application of a configuration, with credentials and limits from the environment.

    Raises:
        InputError: something of it is not valid.
    """
    return create_app(
        dict(configuration.graphs),
        identity=Identity.of_settings(),
        server_policy=configuration.server_policy,
        unauthenticated=configuration.unauthenticated,
        limits=Limits.of_settings(),
        require_all=configuration.require_all,
    )
